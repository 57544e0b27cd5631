"""Calls that take a lock: who waits, for how long, and what is told of one that did not get it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from harness_worker.core.collect_writes import collect_writes
from harness_worker.core.decisions import Decision
from harness_worker.core.ending import stop_calls
from harness_worker.core.outcomes import content_of
from harness_worker.core.records import Call, CallStatus
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.lock_policy import DeclaredLock
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tools import Arguments
from harness_worker.core.visits import StopCause
from harness_worker.core.writes import enter_write, start_write
from harness_worker.errors import ConfigError, TransientError
from harness_worker.ports import LockName, RunningCall
from harness_worker.turn.running.execution import STALE_START_S
from harness_worker.turn.running.job import Canvas
from harness_worker.turn.running.locking import LockKeeper
from harness_worker.wire import TurnStatus
from tests.unit.bad_rules import BAD_RULES, Unshowable
from tests.unit.builders import (
    DEADLINE,
    NOW,
    RUNNER,
    TIMING,
    a_turn,
    a_write,
    event_types,
    pending,
    running,
    snapshot,
)
from tests.unit.engine_kit import Engine, Interrupted, SetClock, answers, raising

LOCK = LockName(tenant="tenant", name="one")
OTHER = RunningCall(turn_id="other", call_id="0.0", attempt=1, runner="host/9")
TOOLS = {"lock_look": Effect.READ_ONLY, "lock_write": Effect.LOCAL_WRITE, "write": Effect.LOCAL_WRITE}


@pytest.fixture
def engine() -> Engine:
    """A turn with tools that take the lock ``one``, beside other turns."""
    return Engine(**TOOLS)


def told(engine: Engine) -> list[str]:
    """What the model reads once the turn has gone on."""
    engine.says(answers("done"))
    engine.advance()
    return engine.contents


@pytest.mark.parametrize("tool", ["lock_look", "lock_write"])
def test_lock_is_held_while_the_body_runs(engine: Engine, tool: str) -> None:
    """No other call gets the lock while the body runs; afterwards it is free."""
    engine.dispatched(tool)
    seen: list[int | None] = []
    engine.bodies[tool] = lambda: seen.append(engine.locks.take(LOCK, OTHER, 1.0))
    assert engine.run() is Canvas.CONTINUES
    assert seen == [None]
    assert engine.locks.take(LOCK, OTHER, 1.0)
    assert told(engine) == ["null"]


def test_calls_that_need_no_lock_do_not_wait_for_each_other(engine: Engine) -> None:
    """A tool's rule may say so of some of its calls."""

    def none(_arguments: Arguments) -> None:
        return None

    engine.run_calls_with(tools={name: replace(spec, lock=none) for name, spec in engine.tools.items()})
    engine.dispatched("lock_look", "lock_look")
    others = ["0.1"]
    engine.bodies["lock_look"] = lambda: others and engine.run(others.pop())
    assert engine.run("0.0") is Canvas.CONTINUES
    assert (engine.ran, engine.clock.waits) == (["lock_look", "lock_look"], [])


@pytest.mark.parametrize("tool", ["lock_look", "lock_write"])
def test_call_waits_for_its_lock(engine: Engine, tool: str, caplog: pytest.LogCaptureFixture) -> None:
    """It starts when the lock is free, with what is left of its time, and says in the log that it waits."""
    caplog.set_level(logging.INFO, logger="harness_worker.turn.running.locking")
    engine.dispatched(tool)
    engine.locks.take(LOCK, OTHER, 1.0)
    assert engine.run() is Canvas.CONTINUES  # the clock runs while it waits, until the other's lease is over
    assert TIMING.lease_ttl_s <= engine.clock.now_s - NOW < TIMING.lease_ttl_s + 1
    assert engine.ran == [tool]
    assert caplog.text.count("waits for the lock one") == 1
    assert told(engine) == [f"{tool} done"]


@pytest.mark.parametrize(
    ("tool", "content"),
    [
        ("lock_look", "lock_missed: the lock one was held by other calls until the time of lock_look ended"),
        ("lock_write", "denied: deadline: the lock one was held by other calls until the time of lock_write ended"),
    ],
)
def test_call_that_does_not_get_its_lock_did_not_start(engine: Engine, tool: str, content: str) -> None:
    """The call ends as one that did not start, never as one in doubt, and the rest of the plan runs."""
    engine.dispatched(tool, "write")
    waiting(engine, lambda: engine.locks.beat([OTHER]))
    assert engine.run("0.0") is Canvas.CONTINUES
    assert engine.ran == []
    if tool == "lock_look":
        engine.advance()
    assert engine.run("0.1") is Canvas.CONTINUES
    assert told(engine) == [f"{content}; it did not start", "write done"]


@pytest.mark.parametrize(("timeout_s", "slow_s"), [(10.0, 0.4), (1.0, 0.08)])
def test_read_that_misses_its_lock_says_so_in_time(engine: Engine, timeout_s: float, slow_s: float) -> None:
    """It gives up shortly before its deadline, while the gate, which may be far away, still accepts that."""
    tools = {name: replace(spec, timeout_s=timeout_s) for name, spec in engine.tools.items()}
    engine.run_calls_with(tools=tools)
    engine.dispatched("lock_look")
    waiting(engine, lambda: engine.locks.beat([OTHER]))
    engine.seen_gate.before["complete"].append(lambda: engine.clock.wait(slow_s))
    assert engine.run() is Canvas.CONTINUES
    assert timeout_s * 0.9 <= engine.clock.now_s - NOW <= timeout_s
    assert engine.late == []
    assert told(engine)[0].startswith("lock_missed: ")


@pytest.mark.parametrize("when", ["before", "after"])
def test_write_that_gets_its_lock_too_late_did_not_start(engine: Engine, when: str) -> None:
    """The write's time ended before its body was called, just before or after the journal let it in.

    It is not in doubt, nobody waits for its lease, and the rest of the plan runs.
    """
    engine.dispatched("lock_write", "write")
    waiting(engine, lambda: engine.locks.beat([OTHER]) if engine.clock.now_s < NOW + 8.8 else engine.locks.lose(OTHER))
    getattr(engine.seen_store, when)["transact"] += [nothing, lambda: engine.clock.wait(1.5)]
    assert engine.run("0.0") is Canvas.CONTINUES
    assert engine.ran == []
    assert engine.run("0.1") is Canvas.CONTINUES
    assert told(engine) == ["denied: deadline: the time of lock_write ended before it could start", "write done"]


def test_write_that_misses_its_lock_again_is_in_doubt() -> None:
    """Its first attempt may have had its effect before the process died, so it cannot end as not started."""
    engine = Engine(safe_lock_write=Effect.LOCAL_WRITE)
    engine.dispatched("safe_lock_write")
    engine.seen_store.before["transact"] += [nothing, nothing, raising(SystemExit("dead"))]
    with pytest.raises(SystemExit):
        engine.run()
    engine.store.lose_call(engine.alive())
    engine.advance()
    waiting(engine, lambda: engine.locks.beat([OTHER]))
    assert engine.run() is Canvas.STAYS
    assert engine.ran == ["safe_lock_write"]
    assert told(engine)[0].startswith("outcome_unknown: safe_lock_write started and could not run again in time")


@pytest.mark.parametrize("tool", ["lock_look", "lock_write"])
def test_call_whose_turn_ends_while_it_waits_does_not_start(engine: Engine, tool: str) -> None:
    """A waiting call looks at each try whether its turn still runs; if not, it gives up, and has no late result."""
    engine.dispatched(tool)

    def cancel() -> None:
        engine.store.cancel(engine.turn.id)
        engine.advance()

    waiting(engine, cancel)
    assert engine.run() is (Canvas.CONTINUES if tool == "lock_look" else Canvas.STAYS)
    assert (engine.ran, engine.turn.status) == ([], TurnStatus.CANCELLED)
    expected = "cancelled" if tool == "lock_look" else "denied: not_run: the turn was cancelled"
    assert engine.contents == [expected]
    assert (engine.clock.now_s < NOW + 1.0, engine.late) == (True, [])


def test_write_whose_turn_ended_though_its_gate_does_not_know_it_does_not_start(engine: Engine) -> None:
    """Once it has its lock, the journal decides whether it may start; it gives up the lock at once if not."""
    engine.dispatched("lock_write")

    def cancel() -> None:
        engine.store.cancel(engine.turn.id)
        engine.advance()
        engine.flush()
        engine.locks.lose(OTHER)

    waiting(engine, cancel)
    assert engine.run() is Canvas.STAYS
    assert (engine.ran, engine.late) == ([], [])
    assert engine.contents == ["denied: not_run: the turn was cancelled"]
    assert engine.locks.take(LOCK, OTHER, 1.0)


def nothing() -> None:
    """Do nothing."""


def waiting(engine: Engine, meanwhile: Callable[[], None]) -> None:
    """Have another call hold the lock, and call ``meanwhile`` at each pause of the call that waits for it."""
    engine.locks.take(LOCK, OTHER, 1.0)
    engine.run_calls_with(keeper=LockKeeper(locks=engine.locks, clock=Interjecting(engine.clock, meanwhile)))


@dataclass(frozen=True, slots=True)
class Interjecting:
    """Implements ``ports.Clock``: does something at each wait."""

    clock: SetClock
    meanwhile: Callable[[], None]

    def monotonic(self) -> float:
        """The time of the clock within."""
        return self.clock.monotonic()

    def wait(self, seconds: float) -> None:
        """Pass the time, and then call ``meanwhile``."""
        self.clock.wait(seconds)
        self.meanwhile()


def test_read_that_was_superseded_while_it_waited_does_not_start(engine: Engine) -> None:
    """After the wait for its lock, a read asks the gate again whether it may start."""
    engine.dispatched("lock_look")
    engine.seen_gate.before["goes_on"].append(engine.flush)
    assert engine.run() is Canvas.CONTINUES
    assert engine.ran == []


def test_read_whose_gate_does_not_answer_after_its_wait_is_sent_again_at_once(engine: Engine) -> None:
    """The read reports that it did not start, so that nobody waits for its heartbeats to stop."""
    engine.dispatched("lock_look")
    engine.seen_gate.before["goes_on"].append(raising(TransientError("silent")))
    assert engine.run() is Canvas.CONTINUES
    engine.advance()
    assert (engine.ran, engine.sent.calls["0.0"].attempt) == ([], 2)


def test_read_whose_process_stood_still_after_its_wait_does_not_start(engine: Engine) -> None:
    """The gate's permission is stale if the process was stopped after asking for it."""
    engine.dispatched("lock_look")
    engine.seen_gate.after["goes_on"].append(lambda: engine.clock.wait(STALE_START_S + 0.1))
    assert engine.run() is Canvas.CONTINUES
    assert engine.ran == []


def test_write_whose_process_stood_still_after_its_wait_is_handed_back(engine: Engine) -> None:
    """What the journal and the gate said is stale by then."""
    engine.dispatched("lock_write")
    engine.seen_gate.after["admits_write"].append(lambda: engine.clock.wait(STALE_START_S + 0.1))
    assert engine.run() is Canvas.STAYS
    assert (engine.ran, engine.calls[0].status) == ([], CallStatus.PENDING)


def test_silent_locks_are_asked_again(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A Redis that does not answer for a moment only delays the call; a lock that cannot be released expires."""
    engine.dispatched("lock_write")
    locks = Interrupted(lambda: engine.locks)
    locks.before["take"].append(raising(TransientError("silent")))
    locks.before["free"].append(raising(TransientError("silent")))
    engine.run_calls_with(keeper=LockKeeper(locks=cast("Any", locks), clock=engine.clock))
    assert engine.run() is Canvas.CONTINUES
    assert told(engine) == ["lock_write done"]
    assert "lock one not released" in caplog.text


def test_lock_lost_while_the_body_ran_is_logged(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """The result stands, because the journal, not the lock, decides about writes."""
    engine.dispatched("lock_write")
    engine.bodies["lock_write"] = lambda: engine.locks.lose(engine.alive())
    engine.run()
    assert "lost the lock one" in caplog.text
    assert told(engine) == ["null"]


# --- rules over snapshots ---------------------------------------------------------------------------------------------


def _started(call: Call) -> Call:
    turn = a_turn(status=TurnStatus.RUNNING)
    asked = snapshot(turn, call)
    rule = start_write(asked, call_id="0.0", tool=call.tool, attempt=1, runner=RUNNER, timing=TIMING, waits=True)
    return rule.calls[0]


def _enter(call: Call, now: float = NOW, **changes: Any) -> Decision[float | None]:  # noqa: ANN401 - a turn's fields
    turn = a_turn(**{"status": TurnStatus.RUNNING, **changes})
    return enter_write(snapshot(turn, call, now=now), call_id="0.0", attempt=1, runner=RUNNER)


def test_write_that_waits_has_started_nothing() -> None:
    """A waiting write belongs to its runner and its time runs, but its wave only starts with its body."""
    waiting = _started(pending(a_write()))
    assert (waiting.status, waiting.runner, waiting.worker, waiting.started_at) == (
        CallStatus.RUNNING,
        RUNNER,
        None,
        None,
    )
    decision = _enter(waiting, now=NOW + 4)
    assert decision.result == 6.0
    assert (decision.calls[0].worker, decision.calls[0].started_at) == (RUNNER, NOW + 4)
    assert event_types(decision) == ["wave.started"]


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        (a_write(1), {}),
        (running(a_write()), {}),
        (running(a_write(), worker=None, runner="host/2"), {}),
        (running(a_write(), worker=None, attempt=2), {}),
        (pending(a_write()), {}),
        (a_write(), {}),
        (running(a_write(), worker=None), {"cancel_requested": True}),
        (running(a_write(), worker=None), {"status": TurnStatus.FAILED}),
    ],
)
def test_write_that_is_no_longer_its_runners_does_not_enter(call: Call, changes: dict[str, Any]) -> None:
    """A call is not entered if it is gone, was entered, has another runner, or its turn is stopped."""
    assert _enter(call, **changes) == Decision(result=None)


def test_write_whose_time_has_ended_does_not_enter() -> None:
    """The write still belongs to its runner, which reports that its time is over."""
    late = running(a_write(), worker=None, deadline_at=NOW)
    assert _enter(late) == Decision(result=0.0)


def test_write_lost_while_it_waited_is_sent_again_as_it_was() -> None:
    """Its body was never entered, so it is not in doubt and stays the same attempt."""
    call = running(a_write(), worker=None, started_at=None, lease_until=NOW)
    collected = collect_writes([call], turn_deadline_at=DEADLINE, now=NOW, timing=TIMING)
    assert [(c.status, c.attempt, c.runner) for c in collected.resend] == [(CallStatus.PENDING, 1, None)]


def test_write_whose_time_ended_while_it_waited_is_denied() -> None:
    """If its process reports nothing, the next look-in ends the call."""
    call = running(a_write(), worker=None, started_at=None, lease_until=NOW + 17)
    (ended,) = collect_writes([call], turn_deadline_at=DEADLINE, now=NOW + 17, timing=TIMING).changed
    assert ended.outcome is not None
    assert content_of(ended.outcome).startswith("denied: deadline: its lock was held by other calls")


@pytest.mark.parametrize(("attempt", "content"), [(1, "denied: not_run: "), (2, "outcome_unknown: ")])
def test_write_stopped_while_it_waits_is_certain_the_first_time(attempt: int, content: str) -> None:
    """A waiting first attempt has not started; before a later one, an earlier one may have had its effect."""
    call = running(a_write(retry_safe=True), worker=None, attempt=attempt)
    (stopped,) = stop_calls([call], StopCause.CANCELLED, {}, now=NOW)
    assert stopped.outcome is not None
    assert content_of(stopped.outcome).startswith(content)


# --- declarations -----------------------------------------------------------------------------------------------------


def ship(order_id: str, depot: str = "main") -> str:
    """Ship an order."""
    return order_id + depot


def _lock_of(lock: Any, values: dict[str, Any]) -> str | None:  # noqa: ANN401 - any declaration
    registry = Registry()
    registry.tool(lock=lock)(ship)
    rule = registry.tools["ship"].lock
    assert rule is not None
    return rule(values)


def _by_order(arguments: Any) -> str | None:  # noqa: ANN401 - attributes and mapping at once
    return f"order:{arguments.order_id}" if arguments["order_id"] else None


def test_template_names_the_lock_by_the_arguments() -> None:
    """Validated arguments fill it, defaults included; a template without any is one lock for all calls."""
    values = {"order_id": "7", "depot": "north"}
    assert _lock_of("order:{order_id}@{depot}", values) == "order:7@north"
    assert _lock_of("ships", values) == "ships"
    assert _lock_of(_by_order, values) == "order:7"
    assert _lock_of(_by_order, {**values, "order_id": ""}) is None
    assert _lock_of("{order_id}", {**values, "order_id": ""}) == "tool:ship"


@pytest.mark.parametrize("template", ["order:{id}", "order:{}", "order:{0}", "order:{nope.x}", "order:{nope[0]}"])
def test_template_with_an_unknown_argument_is_refused(template: str) -> None:
    """The declaration is refused with a message that names the tool and the arguments that it has."""
    with pytest.raises(ConfigError, match=r"tool 'ship': lock .* names no argument .*: order_id, depot"):
        _lock_of(template, {})


@pytest.mark.parametrize("template", ["", " "])
def test_template_without_a_name_is_refused(template: str) -> None:
    """A blank template would be a lock without a name."""
    with pytest.raises(ConfigError, match=r"tool 'ship': lock must be None, a template such as 'order:"):
        _lock_of(template, {})


def test_template_that_is_none_is_refused() -> None:
    """A template with an open brace cannot be read."""
    with pytest.raises(ConfigError, match=r"tool 'ship': lock 'order:\{' is no template"):
        _lock_of("order:{", {})


@pytest.mark.parametrize(("template", "said"), [("{order_id!q}", "conversion"), ("{order_id!s:zz}", "format")])
def test_template_that_can_never_be_filled_is_refused(template: str, said: str) -> None:
    """The template names a conversion that does not exist, or a format that text does not have."""
    with pytest.raises(ConfigError, match=rf"tool 'ship': lock .* is no template: .*{said}"):
        _lock_of(template, {})
    assert _lock_of("{order_id!r:>4}", {"order_id": "7"}) == " '7'"


def _raw(args: dict[str, Any]) -> dict[str, Any]:
    return args


def test_template_of_a_tool_with_an_open_schema_is_taken_on_trust() -> None:
    """The arguments of such a tool are not known beforehand, so no name can be refused."""
    registry = Registry()
    registry.add_tool(_raw, name="t", schema={"type": "object"}, description="", lock="order:{id}")
    rule = registry.tools["t"].lock
    assert rule is not None
    assert rule({"id": 3}) == "order:3"
    assert rule({}) == "tool:t"


@pytest.mark.parametrize("rule", [*BAD_RULES, len])
def test_lock_that_cannot_be_told_excludes_its_like(rule: Any, caplog: pytest.LogCaptureFixture) -> None:  # noqa: ANN401
    """If a rule raises or returns no text, the tool's calls run one at a time, which is logged."""
    lock = DeclaredLock(tool_name="ship", rule=rule)
    assert (lock({}), lock.fails({})) == ("tool:ship", True)
    assert "tool ship: lock" in caplog.text


@pytest.mark.parametrize(("told", "shown"), [("", "''"), (7, "7"), (Unshowable(), "<Unshowable>")])
def test_log_shows_what_a_rule_told_instead_of_a_lock(
    told: object, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It says what was expected, and what came instead, even of an empty text and of what cannot show itself."""
    DeclaredLock(tool_name="ship", rule=lambda _: told)({})
    assert f"expected a text that is not empty, or None, not {shown}" in caplog.text


@pytest.mark.parametrize("name", ["tool:ship", "order:7", None])
def test_lock_that_a_rule_tells_is_no_failure(name: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """Any name that a rule returns is used, even the one that calls share whose rule fails."""
    lock = DeclaredLock(tool_name="ship", rule=lambda _: name)
    assert (lock({}), lock.fails({})) == (name, False)
    assert caplog.text == ""
