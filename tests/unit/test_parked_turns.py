"""A turn that waits for a person, run through the engine: it is parked, answered, expires or is cancelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness_worker.core.records import CallStatus
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.hooks import Hooks, PreToolUse, Rewrite
from harness_worker.turn.running.job import Canvas
from harness_worker.wire import StopReason, TurnStatus
from tests.unit.builders import TIMING, a_turn
from tests.unit.engine_kit import SOON_S, TIMEOUT_S, TURN_ID, Engine, answers, keys_by_n

TOOLS = {
    "look": Effect.READ_ONLY,
    "ask_look": Effect.READ_ONLY,
    "write": Effect.LOCAL_WRITE,
    "ask_write": Effect.LOCAL_WRITE,
    "ask_soon": Effect.LOCAL_WRITE,
}


@pytest.fixture
def engine() -> Engine:
    """A turn with tools of both kinds, some of which need approval."""
    return Engine(**TOOLS)


def finish(engine: Engine) -> None:
    """Run what was sent last, look at the turn, and let the model answer."""
    for call in engine.calls:
        if call.is_open:
            assert engine.run(call.call_id) is Canvas.CONTINUES
    engine.says(answers("done"))
    engine.advance()


def test_parked_turn_goes_on_when_approved(engine: Engine) -> None:
    """The call is sent only after the answer, and runs once."""
    engine.dispatched("ask_write")
    assert engine.turn.status is TurnStatus.REQUIRES_ACTION
    assert engine.sent.chains == []
    engine.advance()
    assert engine.turn.fence == 1
    assert engine.answer("0.0", "approve")
    assert not engine.answer("0.0", "deny")
    engine.advance()
    assert engine.sent.chains == [["0.0"]]
    finish(engine)
    assert (engine.turn.status, engine.ran) == (TurnStatus.COMPLETED, ["ask_write"])


def test_turn_that_parks_below_another_has_it_looked_at(engine: Engine) -> None:
    """So that the parent tells at once whom it waits for."""
    engine.store.insert_turn(a_turn(id="parent", session_id="other"))
    engine.store.turns[TURN_ID] = replace(engine.turn, parent_id="parent", parent_call_id="0.0")
    engine.dispatched("ask_write")
    assert engine.turn.status is TurnStatus.REQUIRES_ACTION
    assert engine.sent.advanced == [("parent", engine.turn.priority)]


def test_parked_read_goes_on_with_its_wave(engine: Engine) -> None:
    """Reads of one wave are sent together once the last of them is decided."""
    engine.dispatched("look", "ask_look", "ask_look")
    engine.answer("0.1", "approve")
    engine.advance()
    assert (engine.turn.status, engine.sent.chords) == (TurnStatus.REQUIRES_ACTION, [])
    engine.answer("0.2", "deny", reason="enough")
    engine.advance()
    assert engine.sent.chords == [["0.0", "0.1"]]
    finish(engine)
    assert engine.contents == ["look done", "ask_look done", "denied: approval: enough"]


def test_denial_stops_neither_the_plan_nor_the_turn(engine: Engine) -> None:
    """The calls before a denied one have run by then, and those after it run."""
    engine.dispatched("write", "ask_write", "write")
    assert engine.sent.chains == [["0.0"]]
    engine.run("0.0")
    engine.advance()
    assert engine.turn.status is TurnStatus.REQUIRES_ACTION
    engine.answer("0.1", "deny", reason="no")
    engine.advance()
    assert engine.sent.chains[1:] == [["0.2"]]
    finish(engine)
    assert engine.contents == ["write done", "denied: approval: no", "write done"]
    assert engine.turn.status is TurnStatus.COMPLETED


def test_answer_that_comes_while_another_call_runs_counts(engine: Engine) -> None:
    """All questions of a message are asked at once and may be answered in any order."""
    engine.dispatched("ask_write", "ask_write")
    engine.answer("0.0", "approve")
    engine.advance()
    assert (engine.turn.status, engine.sent.chains) == (TurnStatus.RUNNING, [["0.0"]])
    assert engine.answer("0.1", "approve")
    engine.advance()
    assert engine.event_types.count("approval.resolved") == 2
    engine.run("0.0")
    engine.advance()
    assert engine.sent.chains[-1] == ["0.1"]
    assert engine.event_types.count("turn.requires_action") == 1


def test_expiry_denies_and_the_turn_goes_on_with_its_time(engine: Engine) -> None:
    """After a day the call counts as denied, and the turn has as much time left as when it was parked."""
    engine.dispatched("ask_write")
    engine.clock.now_s += TIMING.approval_s
    assert engine.store.overdue(1, 5.0)
    finish(engine)
    assert engine.contents == ["denied: approval: expired"]
    assert (engine.turn.status, engine.ran) == (TurnStatus.COMPLETED, [])
    assert engine.turn.deadline_at == engine.turn.created_at + TIMEOUT_S + TIMING.approval_s


def test_questions_of_one_message_expire_each_by_itself(engine: Engine) -> None:
    """The turn is due when the first expires, and then waits for the other, which may still be answered or expire."""
    engine.dispatched("ask_write", "ask_soon")
    parked_at = engine.clock.now_s
    assert engine.turn.wake_at == parked_at + SOON_S
    engine.clock.now_s += SOON_S
    assert not engine.answer("0.1", "approve")
    assert engine.store.overdue(1, 5.0)
    engine.advance()
    assert [call.approval and call.approval.is_resolved for call in engine.calls] == [False, True]
    assert (engine.turn.status, engine.sent.chains) == (TurnStatus.REQUIRES_ACTION, [])
    assert engine.turn.wake_at == parked_at + TIMING.approval_s
    assert engine.answer("0.0", "approve")
    engine.advance()
    finish(engine)
    assert engine.contents == ["ask_write done", "denied: approval: expired"]
    assert engine.event_types.count("approval.requested") == 2
    assert engine.turn.deadline_at == engine.turn.created_at + TIMEOUT_S + SOON_S


def test_cancel_while_parked_ends_at_once(engine: Engine) -> None:
    """None of the plan has run, and every call's result says so."""
    engine.dispatched("ask_write", "write")
    engine.store.cancel(engine.turn.id)
    engine.advance()
    assert (engine.turn.status, engine.turn.stop_reason) == (TurnStatus.CANCELLED, StopReason.CANCELLED)
    assert engine.contents == ["denied: not_run: the turn was cancelled"] * 2
    assert (engine.turn.parked_at, engine.ran) == (None, [])


def test_approved_call_that_runs_again_is_not_asked_about_again(engine: Engine) -> None:
    """If the worker dies, the call runs again without another question to the person."""
    engine.dispatched("ask_look")
    engine.answer("0.0", "approve")
    engine.advance()
    engine.seen_gate.admit(engine.alive(), 10_000)
    engine.gate.lose(engine.alive())
    engine.advance()
    assert engine.calls[0].attempt == 2
    finish(engine)
    assert engine.event_types.count("approval.requested") == 1
    assert engine.contents == ["ask_look done"]


def test_edited_arguments_are_checked_by_the_tool(engine: Engine) -> None:
    """A person's arguments are validated like a model's, and the call runs with them."""
    engine.dispatched("ask_write", "ask_look")
    engine.answer("0.0", "approve", arguments={"n": 1})
    engine.answer("0.1", "approve", arguments={"bad": "\ud800"})
    engine.advance()
    assert [dict(call.arguments) for call in engine.calls] == [{"n": 1}, {"bad": "\ufffd"}]
    assert engine.calls[0].status is CallStatus.PENDING


def test_edited_arguments_wait_for_a_worker_that_serves_the_agent(engine: Engine) -> None:
    """A worker that does not serve the agent cannot check them: it releases the turn unchanged."""
    engine.dispatched("ask_write")
    engine.answer("0.0", "approve", arguments={"n": 1})
    serves_it = engine.coordinator
    engine.coordinator = replace(serves_it, agents={})
    engine.advance()
    assert (engine.turn.owner, engine.calls[0].status) == (None, CallStatus.PLANNED)
    engine.coordinator = serves_it
    engine.advance()
    assert engine.calls[0].status is CallStatus.PENDING


@pytest.mark.parametrize("reason", [StopReason.CANCELLED, StopReason.DEADLINE])
def test_turn_with_edited_arguments_is_stopped_where_nobody_serves_the_agent(
    engine: Engine, reason: StopReason
) -> None:
    """A turn that must stop runs no more calls, so nobody has to check their arguments."""
    engine.dispatched("ask_write")
    engine.answer("0.0", "approve", arguments={"n": 1})
    engine.coordinator = replace(engine.coordinator, agents={})
    engine.advance()
    assert engine.turn.status is TurnStatus.RUNNING
    if reason is StopReason.CANCELLED:
        engine.store.cancel(engine.turn.id)
    else:
        engine.clock.now_s = engine.turn.deadline_at + 1
    engine.advance()
    assert (engine.turn.status.is_final, engine.turn.stop_reason) == (True, reason)
    assert [text.startswith("denied: not_run") for text in engine.contents] == [True]


def run_parts(engine: Engine) -> list[list[str]]:
    """Run the decided wave and let the model answer; returns the calls that ran side by side, or alone."""
    engine.says(answers("done"))
    engine.work()
    assert engine.turn.status is TurnStatus.COMPLETED
    assert [kind for kind in engine.event_types if kind.startswith("wave.")] == ["wave.started", "wave.completed"]
    return sorted(engine.sent.chords + engine.sent.chains)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ([1, 2, None], [["0.0", "0.1", "0.2", "0.3"]]),
        ([1, 1, None], [["0.0"], ["0.1", "0.2", "0.3"]]),
        ([1, 2, 1], [["0.0", "0.1"], ["0.2", "0.3"]]),
        ([1, 1, 1], [["0.0"], ["0.1"], ["0.2", "0.3"]]),
        ([-1, 2, None], [["0.0"], ["0.1", "0.2", "0.3"]]),
        ([1, -1, None], [["0.0"], ["0.1"], ["0.2", "0.3"]]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_reads_edited_to_the_same_thing_do_not_run_together(
    engine: Engine, given: list[int | None], parts: list[list[str]], *, at_once: bool
) -> None:
    """From the first clash on, a wave's reads run later, in program order, whenever they were edited."""
    keys_by_n(engine).dispatched("ask_look", "ask_look", "ask_look", "look")
    for position, n in enumerate(given):
        if not at_once:
            engine.advance()
        assert engine.answer(f"0.{position}", "approve", arguments=None if n is None else {"n": n})
    assert run_parts(engine) == parts


def test_read_edited_to_arguments_that_do_not_fit_takes_no_room(engine: Engine) -> None:
    """A read that ends denied conflicts with no other, whether the tool or the person refused it."""
    keys_by_n(engine).dispatched("ask_look", "ask_look", "ask_look")
    engine.answer("0.0", "deny", arguments={"n": 1})
    engine.answer("0.1", "approve", arguments={"n": 1})
    engine.answer("0.2", "approve", arguments={"n": 2})
    assert run_parts(engine) == [["0.1", "0.2"]]


def test_edited_read_runs_alone_where_nobody_can_tell_what_it_touches(engine: Engine) -> None:
    """A worker that does not serve the agent runs an edited read alone, once another worker has checked it.

    Reads that nobody edited still run together, as planned.
    """
    keys_by_n(engine).dispatched("ask_look", "ask_look", "look")
    engine.answer("0.0", "approve", arguments={"n": 1})
    engine.advance()
    engine.answer("0.1", "approve")
    engine.coordinator = replace(engine.coordinator, agents={})
    engine.advance()
    assert (engine.sent.chains, engine.sent.chords) == ([["0.0"]], [])
    engine.run("0.0")
    engine.advance()
    assert engine.sent.chords == [["0.1", "0.2"]]


@pytest.mark.parametrize("tools", [("look", "ask_look"), ("ask_look", "look")])
@pytest.mark.parametrize(("n", "parts"), [(1, [["0.0"], ["0.1"]]), (2, [["0.0", "0.1"]])])
def test_edited_read_runs_beside_what_hooks_left_of_its_wave(
    tools: tuple[str, str], n: int, parts: list[list[str]]
) -> None:
    """Reads run together unless they touch the same; hooks are asked about a whole wave at once."""

    class Rewriting(Hooks):
        def on_pre_tool_use(self, event: PreToolUse) -> Rewrite | None:
            """Give one tool other arguments."""
            return Rewrite({"n": 1}) if event.tool == "look" else None

    engine = keys_by_n(Engine(Rewriting(), **TOOLS))
    engine.dispatched(*tools)
    assert not any(call.hooked for call in engine.calls)
    engine.answer(f"0.{tools.index('ask_look')}", "approve", arguments={"n": n})
    assert run_parts(engine) == parts
