"""What a fork remembers of the steps that were copied to it (ADR 34)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_worker.core.doubt import unknown
from harness_worker.core.forks import adopt_past, is_new_fork
from harness_worker.core.prompting.prompt import Prompt, prepare
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call, Message, Turn, TurnPreparation
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.hooks import Hooks, TurnStart
from harness_worker.core.registration.registry import Registry
from harness_worker.core.replay import after_step, duplicate_of, key_for
from harness_worker.errors import TransientError
from harness_worker.wire import TurnStatus
from tests.unit.builders import DEADLINE, READER, TIMING, a_call, a_turn, a_write, denied, ended, failed, snapshot
from tests.unit.engine_kit import TURN_ID, Engine, answers, asks, raising

PREPARED = TurnPreparation(context=("then",), prefix_hash="p")
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def a_fork(step: int, **changes: Any) -> Turn:  # noqa: ANN401 - any field's value
    """A turn with so many copied steps and none of its own."""
    return a_turn(forked_from="origin", first_step=step, step=step, preparation=PREPARED, **changes)


def taken(fork: Turn, *calls: Call) -> Turn:
    """The fork after it adopted these calls."""
    return adopt_past(snapshot(fork), calls=calls).result


def in_doubt(call: Call) -> Call:
    """The call, ended without anybody knowing how."""
    return ended(call, unknown(call, "its worker died"))


def refused(call: Call) -> Call:
    """The call, which never ran."""
    return ended(call, denied(call).outcome)


def failed_for_good(call: Call) -> Call:
    """The call, whose tool will not run again."""
    return ended(call, replace(failed(call), retryable=False))


KINDS: tuple[Callable[[int, int], Call], ...] = (
    lambda at, step: ended(a_call(at, step=step, tool="get", idempotent=True)),
    lambda at, step: ended(a_write(at, step=step, tool="save", idempotent=True)),
    lambda at, step: ended(a_write(at, step=step, tool="put", kind="web")),
    lambda at, step: in_doubt(a_write(at, step=step, tool="send")),
    lambda at, step: refused(a_write(at, step=step, tool="deny")),
    lambda at, step: failed_for_good(a_call(at, step=step, tool="gone")),
)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(KINDS)), max_size=12))
def test_fork_minds_what_its_origin_minded_after_these_steps(asked: list[tuple[int, Any]]) -> None:
    """The fork's recall is that of its origin after the same steps, except for its progress."""
    steps = [(step, kind) for step, kind in sorted(asked, key=lambda each: each[0])]
    calls = [kind(at, step) for at, (step, kind) in enumerate(steps)]
    by_step = [list(group) for _, group in groupby(calls, key=lambda call: call.step)]
    known = reduce(after_step, by_step, Recall())
    later = ended(a_write(99, step=4, tool="later", idempotent=True))
    assert taken(a_fork(4), *reversed(calls), later).recall == replace(known, last_step="", repeats=0)


def test_call_in_doubt_is_repeated_with_its_key() -> None:
    """The tool can tell by the key whether it was done, although another turn asks."""
    lost = a_write(0, tool="send", idempotency_key="origin:0.0")
    again = a_write(0, step=1, tool="send", turn_id="fork", idempotency_key="fork:1.0")
    fork = taken(a_fork(1), in_doubt(lost))
    assert key_for(fork.recall, again) == "origin:0.0"
    assert key_for(fork.recall, replace(again, tool="put")) == "fork:1.0"


def test_call_that_succeeded_is_a_duplicate_in_the_fork() -> None:
    """The call would have been a duplicate in the origin, too."""
    done = ended(a_call(0, tool="get", idempotent=True))
    assert duplicate_of(taken(a_fork(1), done).recall, a_call(0, step=1, tool="get", idempotent=True)) == "0.0"


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({"notes": {"1": "a", "2": "b", "3": "c"}}, {"notes": {"1": "a", "2": "b"}}),
        ({"summary": "so far", "compacted_at": 2}, {"summary": "so far", "compacted_at": 2}),
        ({"summary": "so far", "compacted_at": 3}, {"summary": None, "compacted_at": 0}),
        ({"bound_from": 1}, {"bound_from": 1}),
        ({"bound_from": 3}, {"bound_from": 2}),
        ({"prompt_tokens": 9, "prompt_chars": 30, "compact_at": 10}, {"compact_at": 10}),
    ],
)
def test_fork_is_sent_what_the_step_was_sent(last: dict[str, Any], expected: dict[str, Any]) -> None:
    """Notes, a summary or a prefix that the origin was sent later are left out."""
    fork = taken(replace(a_fork(2), preparation=replace(PREPARED, **last)))
    assert fork.preparation == replace(PREPARED, **expected)


def test_fork_that_is_taken_up_again_is_as_it_was() -> None:
    """A visit that dies before the first step leaves nothing to repair; what it asked for or warned of is kept."""
    calls = (ended(a_call(0, tool="get", idempotent=True)), in_doubt(a_write(1, tool="send")))
    once = taken(a_fork(1), *calls)
    tried = replace(PREPARED, tried_at=1)
    warned = replace(once, recall=replace(once.recall, warned=("max_steps",)), preparation=tried)
    assert taken(warned, *calls) == warned


def test_fork_of_a_turn_that_was_never_prepared_is_none_either() -> None:
    """Its origin was started before preparations existed, and the fork continues without one."""
    assert taken(replace(a_fork(1), preparation=None)).preparation is None


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        (a_fork(1), True),
        (replace(a_fork(1), step=2), False),
        (a_turn(), False),
        (a_turn(forked_from="origin"), False),
    ],
)
def test_only_a_fork_that_has_not_spoken_is_to_be_taken_up(turn: Turn, expected: bool) -> None:
    """A fork from step 0 has no copied steps."""
    assert is_new_fork(turn) is expected


def prompt_of(turn: Turn, system: str, own: list[Message]) -> Prompt:
    """The prompt of an agent with that system text."""
    registry = Registry()
    registry.agent("agent", model="scripted:f", system=system, tools=[])
    return prepare(turn, registry.agents["agent"], past=(), own=own, artifact_reader=READER)


@pytest.mark.parametrize(("system", "sent"), [("be brief", [THOUGHT]), ("be kind", [])])
def test_thoughts_go_with_the_fork_only_behind_the_same_prefix(system: str, sent: list[dict[str, str]]) -> None:
    """No provider accepts thinking under another system text."""
    asks: dict[str, Any] = {"type": "tool_use", "id": "u", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "u", "content": "seen"}
    said: list[tuple[str, Any]] = [("user", "hello"), ("assistant", [THOUGHT, asks]), ("user", [result])]
    own = [Message(role=role, content=content, position=at) for at, (role, content) in enumerate(said)]
    origin = a_turn(step=2)
    origin = replace(origin, preparation=prompt_of(a_turn(), "be brief", own[:1]).preparation)
    fork = taken(replace(a_fork(1), preparation=origin.preparation))
    assert prompt_of(fork, system, own).messages[1].content == [*sent, asks]


def a_forked_engine(starts: list[str]) -> Engine:
    """An engine with a fork that has a copied idempotent read, and with a hook that records starts."""
    engine = Engine(Starting(starts), same_look=Effect.READ_ONLY)
    engine.says(asks("same_look"), answers("so"))
    engine.work()
    store, origin = engine.store, engine.turn
    fork = replace(a_fork(1), id=TURN_ID, preparation=origin.preparation, message_count=3, deadline_at=DEADLINE)
    store.rewind(replace(fork, budget=origin.budget))
    engine.flush()
    for kept in (store.events, engine.ran, starts, engine.model.requests):
        kept.clear()
    return engine


class Starting(Hooks):
    """A hook that records which turns start."""

    def __init__(self, starts: list[str]) -> None:
        self._starts = starts

    def on_turn_start(self, event: TurnStart) -> None:
        """Record the turn."""
        self._starts.append(event.input)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("commits", range(4))
def test_fork_whose_visit_dies_anywhere_goes_on_as_if_it_had_not(when: str, commits: int) -> None:
    """Hooks hear of its start, no copied call runs again, and its own steps are numbered after the copied ones."""
    starts: list[str] = []
    engine = a_forked_engine(starts)
    engine.says(*[lambda: asks("same_look") if engine.model.requests[-1].step == 1 else answers("so")] * 4)
    silent = raising(TransientError("no answer"))
    getattr(engine.seen_store, when)["transact"] += [*[lambda: None] * commits, silent, silent]
    while not engine.turn.status.is_final:
        with suppress(TransientError):
            engine.advance()
        engine.clock.now_s += TIMING.lease_ttl_s + 0.1
    assert (engine.turn.status, engine.turn.used.steps, engine.ran) == (TurnStatus.COMPLETED, 2, [])
    assert starts
    assert engine.contents[1].startswith("denied: duplicate: equal to call 0.0")
    assert [call.call_id for call in engine.calls] == ["0.0", "1.0"]
    steps = [event.data["step"] for event in engine.store.events if event.type == "step.completed"]
    assert steps == [1, 2]
