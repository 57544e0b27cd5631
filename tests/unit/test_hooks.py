"""Hooks in the engine: where each is called, what it may do, and that none of them can break a turn."""

from __future__ import annotations

import functools
import re
from asyncio import CancelledError
from collections import UserDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from unittest.mock import create_autospec

import pytest

from harness_worker.core.approvals import is_undecided
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.hooks import (
    Deny,
    HookEvent,
    Hooks,
    PostToolUse,
    PreToolAnswer,
    PreToolUse,
    Rewrite,
    TurnEnd,
    TurnStart,
    UsageReport,
)
from harness_worker.core.registration.registry import Registry
from harness_worker.errors import ConfigError, ToolError
from harness_worker.ports import ModelReply, ignore
from harness_worker.turn.hooking import HookCaller
from harness_worker.turn.planner import plan_calls
from harness_worker.turn.pre_hooks import PreHooks
from harness_worker.turn.running.job import Canvas
from harness_worker.wire import Approval, TurnStatus
from tests.unit.bad_rules import Unshowable
from tests.unit.builders import a_turn
from tests.unit.engine_kit import THRESHOLD_CHARS, TURN_ID, Engine, answers, asks, keys_by_n, raising
from tests.unit.hook_kit import Recorder

POINTS = ("on_turn_start", "on_pre_tool_use", "on_post_tool_use", "on_stream_chunk", "on_usage", "on_turn_end")


class Raising(Hooks):
    """A hook that raises at every point."""

    def _fail(self, event: HookEvent) -> None:
        raise ValueError(event)

    on_turn_start = on_stream_chunk = on_turn_end = _fail

    def on_pre_tool_use(self, event: PreToolUse) -> PreToolAnswer:
        """Raise."""
        raise SystemExit(event.tool)

    def on_post_tool_use(self, event: PostToolUse) -> None:
        """Raise what is no ``Exception``."""
        raise CancelledError(event)

    def on_usage(self, event: UsageReport) -> None:
        """Raise what cannot be shown."""
        raise Unshowable(event)


def streamed(engine: Engine, text: str) -> None:
    """Have the model say ``text`` piece by piece, and nothing else."""

    def say() -> ModelReply:
        for piece in text:
            engine.model.requests[-1].on_text(piece)
        return answers(text)

    engine.says(say)


def test_hooks_are_called_in_the_order_of_the_turn() -> None:
    """First the start, then each call before and after it runs, then streamed text, usage and the end."""
    recorder = Recorder()
    engine = Engine(recorder)
    engine.dispatched("look", "write")
    engine.run("0.0")
    engine.advance()
    engine.run("0.1")
    streamed(engine, "ok")
    engine.advance()
    assert recorder.seen == [
        "TurnStart",
        *("PreToolUse 0.0", "PostToolUse 0.0", "PreToolUse 0.1", "PostToolUse 0.1"),
        *("StreamChunk", "StreamChunk", "UsageReport", "TurnEnd"),
    ]
    start, *_, usage, end = recorder.told
    assert isinstance(start, TurnStart)
    assert (start.turn_id, start.session_id, start.tenant, start.agent) == (TURN_ID, "session", "tenant", "agent")
    assert isinstance(usage, UsageReport)
    assert (usage.used.steps, usage.used.tool_calls, usage.budget.max_steps) == (2, 2, 6)
    assert isinstance(end, TurnEnd)
    assert (end.status, end.output_text, end.error) == (TurnStatus.COMPLETED, "ok", None)


def test_hooks_that_raise_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Each failure is logged and counted; a pre hook that raises denies nothing, and the next hook is called."""
    recorder = Recorder()
    engine = Engine(Raising(), recorder)
    engine.dispatched("write")
    assert engine.run() is Canvas.CONTINUES
    streamed(engine, "x")
    engine.advance()
    assert (engine.turn.status, engine.contents) == (TurnStatus.COMPLETED, ["write done"])
    assert len(recorder.seen) == len(POINTS)
    assert engine.failures == dict.fromkeys(POINTS, 1)
    assert "hook Raising.on_turn_end failed in turn turn and is ignored" in caplog.text


def test_pre_hook_may_deny_a_call() -> None:
    """The model reads the reason, the other calls run, and the denied call does not count as a tool call."""
    engine = Engine(Recorder(answers={"write": Deny("not on sundays")}))
    engine.dispatched("look", "write")
    engine.run("0.0")
    engine.says(answers("ok"))
    engine.advance()
    assert engine.contents == ["look done", "denied: pre_hook: not on sundays"]
    assert engine.turn.used.tool_calls == 1
    assert "write" not in engine.ran


def test_message_whose_calls_are_all_denied_goes_on() -> None:
    """The model is asked again, in the next visit."""
    engine = Engine(Recorder(answers={"write": Deny("no")}))
    engine.dispatched("write")
    assert (engine.sent.chains, engine.sent.advances, engine.turn.owner) == ([], 1, None)
    engine.says(answers("ok"))
    engine.advance()
    assert engine.turn.output_text == "ok"


def test_pre_hook_may_rewrite_arguments() -> None:
    """The call runs with the hook's arguments; the turn shows them, and so does the event for a later hook."""
    late = Recorder()
    engine = Engine(Recorder(answers={"write": Rewrite({"n": 2})}), late)
    engine.dispatched("write")
    assert engine.calls[0].arguments == {"n": 2}
    (asked,) = late.of(PreToolUse)
    assert asked.arguments == {"n": 2}


def test_hook_is_not_asked_about_a_duplicate_or_a_blocked_tool() -> None:
    """The gates for duplicates and blocked tools come before the hooks."""
    recorder = Recorder()
    engine = Engine(recorder, same=Effect.READ_ONLY, write=Effect.LOCAL_WRITE, tell=Effect.READ_ONLY)

    engine.bodies["write"] = raising(ToolError("never again", retryable=False))
    engine.dispatched("write", "same")
    engine.run("0.0")
    engine.advance()
    engine.run("0.1")
    engine.says(asks("same", "write"))
    engine.advance()
    assert [seen for seen in recorder.seen if seen.startswith("Pre")] == ["PreToolUse 0.0", "PreToolUse 0.1"]
    assert [content.split(":")[1].strip() for content in engine.contents[2:]] == ["duplicate", "blocked"]


@pytest.mark.parametrize("tool", ["look", "write"])
def test_late_outcome_is_not_told_to_hooks(tool: str) -> None:
    """A read's outcome after the gate was closed, or a write's after the turn's end, has no effect at all."""
    recorder = Recorder()
    engine = Engine(recorder)
    engine.dispatched(tool)

    def ends_meanwhile() -> None:
        engine.gate.close(TURN_ID, engine.turn.fence)
        engine.store.cancel(TURN_ID)
        engine.advance()

    engine.bodies[tool] = ends_meanwhile
    engine.run()
    assert "PostToolUse 0.0" not in recorder.seen


@pytest.mark.parametrize("tool", ["look", "write"])
def test_call_that_never_ran_is_not_told_to_hooks(tool: str) -> None:
    """A call that its worker does not serve never ran, and no audit may take it for one that did."""
    recorder = Recorder()
    engine = Engine(recorder)
    engine.dispatched(tool)
    engine.run_calls_with(tools={})
    engine.run()
    engine.says(answers("ok"))
    engine.advance()
    assert engine.contents[0].startswith("denied: validation: ")
    assert "PostToolUse 0.0" not in recorder.seen


@pytest.mark.parametrize("tool", ["look", "write"])
def test_call_of_an_agent_that_its_worker_does_not_know_ends_as_any_other(tool: str) -> None:
    """Its tools may be served where its hooks are not."""
    engine = Engine()
    engine.dispatched(tool)
    engine.run_calls_with(agents={})
    assert engine.run() is Canvas.CONTINUES
    engine.says(answers("ok"))
    engine.advance()
    assert engine.contents == [f"{tool} done"]


def test_hooks_are_asked_again_after_a_redelivery() -> None:
    """A coordinator that dies while it asks leaves the calls as they were."""
    recorder = Recorder()
    engine = Engine(recorder)
    engine.seen_store.before["transact"] += [lambda: None, lambda: None, raising(SystemExit("dead"))]
    with pytest.raises(SystemExit):
        engine.dispatched("write")
    engine.clock.wait(30.0)
    engine.advance()
    assert [seen for seen in recorder.seen if seen.startswith("Pre")] == ["PreToolUse 0.0"] * 2
    assert engine.sent.chains == [["0.0"]]


def test_first_denial_wins() -> None:
    """Later hooks are not asked, so none can let the call run after all."""
    later = Recorder(answers={"write": Rewrite({})})
    engine = Engine(Recorder(answers={"write": Deny("no")}), later)
    engine.says(asks("write"), answers("done"))
    engine.advance()
    assert (engine.contents, engine.sent.chains) == (["denied: pre_hook: no"], [])
    assert "PreToolUse 0.0" not in later.seen


def test_agent_gone_from_a_worker_is_left_to_others() -> None:
    """A worker that does not serve the agent cannot ask its hooks."""
    recorder = Recorder()
    engine = Engine(recorder)
    engine.dispatched("look", "write")
    engine.run("0.0")
    object.__setattr__(engine.coordinator, "agents", {})
    engine.advance()
    assert (engine.turn.status, engine.turn.owner, engine.sent.chains[1:]) == (TurnStatus.RUNNING, None, [])


# --- the pre hooks by themselves


def get(order_id: str) -> str:
    """Read an order."""
    return order_id


def cancel(order_id: str) -> str:
    """Cancel an order."""
    return order_id


@dataclass(slots=True)
class Ruled(Hooks):
    """A hook that answers by the order that a call is about."""

    rules: Mapping[str, Any]

    def on_pre_tool_use(self, event: PreToolUse) -> PreToolAnswer:
        """Look it up."""
        order = event.arguments.get("order_id", "")
        return self.rules.get(order if isinstance(order, str) else f"_{order}")


def answered(*orders: object, tool: str = "get", **rules: object) -> tuple[list[Any], list[str]]:
    """The arguments or the denial of each call after its hooks were asked, and the points that failed."""
    registry = Registry()
    registry.tool(effect=Effect.READ_ONLY)(get)
    registry.tool(effect=Effect.LOCAL_WRITE)(cancel)
    agent = registry.agent("a", model="m", tools=["get", "cancel"], hooks=[Ruled(rules)])
    uses = [{"type": "tool_use", "id": "u", "name": tool, "input": {"order_id": order}} for order in orders]
    calls = plan_calls(uses, a_turn(), agent)
    assert all(call.hooked for call in calls)
    failures = list[str]()
    caller = HookCaller(failures.append)
    after = PreHooks(caller=caller, turn=a_turn(), agent=agent, threshold_chars=THRESHOLD_CHARS).answered(calls)
    assert not any(call.hooked for call in after)
    return [getattr(call.outcome, "details", None) or call.arguments for call in after], failures


def test_rewritten_arguments_are_validated() -> None:
    """Arguments that do not fit are converted if possible; else the call is denied, naming them."""
    said, _ = answered("A", "B", tool="cancel", A=Rewrite({"order_id": "C"}), B=Rewrite({"id": 1}))
    assert said[0] == {"order_id": "C"}
    assert "order_id: required, but missing" in said[1]


def test_hook_changes_no_call_by_changing_what_it_was_told() -> None:
    """Only an answer is validated, and counts."""

    class Meddling(Hooks):
        def on_pre_tool_use(self, event: PreToolUse) -> None:
            event.arguments["orders"].append("B")

    def find(orders: list[str]) -> str:
        """Find orders."""
        return ", ".join(orders)

    registry = Registry()
    registry.tool(effect=Effect.READ_ONLY)(find)
    agent = registry.agent("a", model="m", tools=["find"], hooks=[Meddling()])
    calls = plan_calls([{"id": "u", "name": "find", "input": {"orders": ["A"]}}], a_turn(), agent)
    pre_hooks = PreHooks(caller=HookCaller(ignore), turn=a_turn(), agent=agent, threshold_chars=THRESHOLD_CHARS)
    assert [call.arguments for call in pre_hooks.answered(calls)] == [{"orders": ["A"]}]


def test_hook_may_mend_what_the_model_got_wrong() -> None:
    """Validation comes after the hooks."""
    said, _ = answered(7, W=Deny("another"), _7=Rewrite({"order_id": "W7"}))
    assert said == [{"order_id": "W7"}]


@pytest.mark.parametrize(
    ("tools", "parts"),
    [
        (("look", "look", "other"), [["0.0"], ["0.1", "0.2"]]),
        (("look", "gone", "look"), [["0.0"], ["0.2"]]),
        (("gone", "look", "other"), [["0.1", "0.2"]]),
        (("ask_look", "ask_look", "other"), [["0.0"], ["0.1", "0.2"]]),
        (("ask_look", "ask_look", "ask_write"), [["0.0"], ["0.1"], ["0.2"]]),
    ],
)
def test_reads_rewritten_to_the_same_thing_do_not_run_together(tools: tuple[str, ...], parts: list[list[str]]) -> None:
    """From the first clash on, a wave's reads run later, whoever else had to agree.

    A denied read conflicts with no other, and hooks are asked about each call once.
    """
    same = Rewrite({"n": 1})
    recorder = Recorder(answers={"look": same, "ask_look": same, "gone": Deny("no")})
    reads = dict.fromkeys(("look", "ask_look", "other", "gone"), Effect.READ_ONLY)
    engine = keys_by_n(Engine(recorder, **reads, ask_write=Effect.LOCAL_WRITE))
    engine.dispatched(*tools)
    for call in filter(is_undecided, engine.calls):
        engine.answer(call.call_id, "approve")
    for call_id in tuple(engine.sent.calls):
        engine.run(call_id)
    engine.says(answers("done"))
    engine.work()
    assert sorted(engine.sent.chords + engine.sent.chains) == parts
    assert sorted(seen for seen in recorder.seen if seen.startswith("PreToolUse")) == [
        f"PreToolUse 0.{position}" for position in range(len(tools))
    ]


@pytest.mark.parametrize("answer", [True, "no", Deny(7), Rewrite([]), Unshowable()])  # type: ignore[arg-type]
def test_answer_that_makes_no_sense_is_ignored_and_counted(answer: object) -> None:
    """It is treated as if the hook had raised."""
    said, failures = answered("A", A=answer)
    assert said == [{"order_id": "A"}]
    assert failures == ["on_pre_tool_use"]


class Unreadable(UserDict[str, object]):
    """A mapping that raises while it is read."""

    def __iter__(self) -> NoReturn:
        """Raise."""
        raise ValueError("not now\x00")


def test_rewrite_that_cannot_be_held_denies_the_call(caplog: pytest.LogCaptureFixture) -> None:
    """The call must not run with what a hook took away, just because another value cannot be read."""
    deep: object = "A"
    for _ in range(150):
        deep = [deep]
    for arguments in ({"order_id": object()}, {"order_id": "***", "other": deep}, Unreadable()):
        (said,), failures = answered("A", A=Rewrite(arguments))
        assert str(said).startswith("a hook gave arguments that JSON cannot hold: ")
        assert failures == ["on_pre_tool_use"]
    assert caplog.text.count("and denies the call: ") == 3


def test_rewrite_for_which_there_is_no_memory_denies_nothing() -> None:
    """The visit is put off, and the hooks are asked again."""

    class Large(UserDict[str, object]):
        def __iter__(self) -> NoReturn:
            raise MemoryError

    with pytest.raises(MemoryError):
        answered("A", A=Rewrite(Large()))


def test_long_reason_of_a_denial_is_cut() -> None:
    """The reason stays in the session's history, where a text too long for any model would end every turn."""
    (reason,), _ = answered("A", A=Deny("x" * 5_000_000))
    assert (len(reason), reason[:2]) == (THRESHOLD_CHARS, "xx")
    assert reason.endswith("x… [cut: 5000000 characters]")


@pytest.mark.parametrize(("cents", "is_asked"), [(5, False), (500, True)])
def test_rewritten_call_needs_approval_by_its_new_arguments(cents: int, is_asked: bool) -> None:
    """Hooks come before persons, who agree to what would run."""
    registry = Registry()

    def refund(cents: int) -> int:
        """Pay back."""
        return cents

    registry.tool(approval=lambda a: a.cents > 100, approval_timeout_s=60)(refund)
    agent = registry.agent("a", model="m", tools=["refund"], hooks=[Ruled({"": Rewrite({"cents": cents})})])
    (call,) = plan_calls([{"id": "u", "name": "refund", "input": {"cents": 50}}], a_turn(), agent)
    (after,) = PreHooks(
        caller=HookCaller(ignore), turn=a_turn(), agent=agent, threshold_chars=THRESHOLD_CHARS
    ).answered([call])
    assert (after.arguments, is_undecided(after)) == ({"cents": cents}, is_asked)
    assert after.approval == (Approval(timeout_s=60) if is_asked else None)


def test_tool_deployed_away_is_left_to_the_gate() -> None:
    """No hook is asked about a tool that does not exist any more."""
    registry = Registry()
    registry.tool(effect=Effect.READ_ONLY)(get)
    agent = registry.agent("a", model="m", tools=["get"], hooks=[Ruled({"A": Deny("no")})])
    (call,) = plan_calls([{"id": "u", "name": "get", "input": {"order_id": "A"}}], a_turn(), agent)
    empty = registry.agent("b", model="m", hooks=[Ruled({"A": Deny("no")})])
    (after,) = PreHooks(
        caller=HookCaller(ignore), turn=a_turn(), agent=empty, threshold_chars=THRESHOLD_CHARS
    ).answered([call])
    assert (after.outcome, after.hooked) == (None, False)


def test_agent_refuses_hooks_that_are_none() -> None:
    """The usual mistake is a class instead of an instance."""
    with pytest.raises(ConfigError, match=r"agent 'a': hooks must be instances of a subclass of harness_worker\.Hooks"):
        Registry().agent("a", model="m", hooks=[Recorder])  # type: ignore[list-item]


class Async(Hooks):
    """A hook whose coroutine nobody would run."""

    async def on_pre_tool_use(self, event: PreToolUse) -> Deny:  # type: ignore[override]
        """Deny."""
        return Deny(event.tool)


class TwoArguments(Hooks):
    """A hook that takes two arguments and would be given one."""

    def on_pre_tool_use(self, event: PreToolUse, ctx: object) -> Deny:  # type: ignore[override]
        """Deny."""
        return Deny(f"{event.tool} {ctx}")


class NoSelf(Hooks):
    """A hook that takes no ``self``, and would be given the event in its place."""

    def on_turn_end() -> None:  # type: ignore[override]
        """Nothing."""


class Nothing(Hooks):
    """A hook whose method cannot be called."""

    on_usage: Any = None


class Yields(Hooks):
    """A hook whose body would never run."""

    def on_pre_tool_use(self, event: PreToolUse) -> Iterator[Deny]:  # type: ignore[override]
        """Deny."""
        yield Deny(event.tool)


@dataclass
class OnTheObject(Hooks):
    """A hook whose method is on the object, not on its class."""

    on_pre_tool_use: Any


class Lazy:
    """An object that raises whatever is asked of it, as proxies do out of their context."""

    @property
    def __class__(self) -> type[Lazy]:  # type: ignore[override]
        """Raise."""
        raise RuntimeError


class Misspelt(Hooks):
    """A hook whose method nobody would call."""

    def on_pre_tool(self, event: PreToolUse) -> Deny:
        """Deny."""
        return Deny(event.tool)


class StillMisspelt(Misspelt):
    """A hook that inherits such a method."""


class OwnName(Hooks):
    """A hook with a method whose name is no hook's."""

    @staticmethod
    def on_zzz() -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (Async(), "Async.on_pre_tool_use: async functions are refused, workers are synchronous"),
        (
            TwoArguments(),
            "TwoArguments.on_pre_tool_use must take one argument, the event, but its parameters are (self, event: ",
        ),
        (NoSelf(), "NoSelf.on_turn_end must take one argument, the event, but its parameters are ()"),
        (Yields(), "Yields.on_pre_tool_use must return what it says, but it yields: it would never run"),
        (OnTheObject(Deny), "OnTheObject.on_pre_tool_use is set on the object, where nobody asks it; make it a method"),
        (Nothing(), "Nothing.on_usage must be a function, not None"),
        (Misspelt(), "Misspelt: Hooks has no on_pre_tool; did you mean on_pre_tool_use? A method of your own needs a"),
        (StillMisspelt(), "StillMisspelt: Hooks has no on_pre_tool; did you mean on_pre_tool_use?"),
        (OwnName(), f"OwnName: Hooks has no on_zzz; there are: {', '.join(POINTS)}; A method of your own"),
    ],
)
def test_hook_that_would_never_be_asked_is_refused(hook: Hooks, said: str) -> None:
    """It is refused when its agent is declared, because a guard that fails lets every call run."""
    registry = Registry()
    with pytest.raises(ConfigError, match=f"^agent 'a': hook {re.escape(said)}"):
        registry.agent("a", model="m", hooks=[hook])
    assert not registry.agents


def test_mock_of_hooks_is_refused() -> None:
    """A mock passes for an instance, but its type has no hooks, which would break every turn."""
    with pytest.raises(ConfigError, match="hooks must be instances of a subclass"):
        Registry().agent("a", model="m", hooks=[create_autospec(Hooks, instance=True)])


def _noted(kind: str, event: HookEvent) -> None:
    del kind, event


def _noted_by(hook: Hooks, event: HookEvent) -> None:
    del hook, event


def _noted_with_more(hook: Hooks, event: HookEvent, more: int) -> None:
    del hook, event, more


@functools.wraps(_noted_with_more)
def _given_more(hook: Hooks, event: HookEvent) -> None:
    _noted_with_more(hook, event, 1)


class Listener:
    """A base class of another library."""

    def on_message(self, message: str) -> None:
        """Nothing."""


class Odd(Listener, Hooks):
    """Hooks of many kinds that can be called with their event, and names that are no misspelt hook's."""

    on_duty = "alice"
    database = Lazy()
    on_stream_chunk: Any = staticmethod(functools.partial(_noted, "chunk"))
    on_turn_start: Any = _given_more
    on_post_tool_use: Any = functools.cache(_noted_by)

    def on_message(self, message: str) -> None:
        """Nothing."""

    @classmethod
    def on_usage(cls, event: UsageReport, *more: object) -> None:  # type: ignore[override]
        """Nothing."""

    @staticmethod
    def on_turn_end(event: TurnEnd) -> None:  # type: ignore[override]
        """Nothing."""

    @property
    def on_pre_tool_use(self) -> Any:  # type: ignore[override]  # noqa: ANN401 - nobody can tell yet
        """Raise."""
        raise RuntimeError


class Unready(Hooks):
    """A hook whose method is not there yet."""

    @functools.cached_property
    def on_turn_end(self) -> Any:  # type: ignore[override]  # noqa: ANN401 - nobody can tell yet
        """Raise."""
        raise RuntimeError


def test_hook_that_may_be_called_is_taken() -> None:
    """Only what surely fails is refused."""
    agent = Registry().agent("a", model="m", hooks=[Odd(), Unready(), Recorder(), Hooks()])
    assert len(agent.hooks) == 4


def test_agent_without_pre_hooks_costs_no_extra_visit() -> None:
    """Calls wait for hooks only if a hook wants to be asked before they run."""

    class Ends(Hooks):
        """A hook that is only called at the end."""

        def on_turn_end(self, event: TurnEnd) -> None:
            """Nothing."""

    engine = Engine(Ends())
    engine.dispatched("write")
    assert (engine.calls[0].hooked, engine.sent.chains) == (False, [["0.0"]])
