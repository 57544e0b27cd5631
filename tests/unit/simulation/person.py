"""Somebody who is asked whether calls may run, and answers: soon, late, twice, or never."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from harness_worker.core.approvals import Answer, answer
from harness_worker.core.outcomes import DenialReason, ToolDenied
from harness_worker.core.records import Call, Event, EventDraft
from tests.unit.memory_store import MemoryTurnStore
from tests.unit.simulation.kernel import Kernel

LATE_S = 15.0
NEVER = 0.1
TWICE = 0.3


@dataclass(slots=True, kw_only=True)
class Person:
    """One client, or two who do not know of each other.

    Args:
        seed: Decides what is said; the kernel's dice are left alone, so that other turns stay as they are.
        kernel: Virtual time.
        store: Where answers are written.
        wake: Asks a coordinator to look.

    Attributes:
        heard: The answers that were accepted, by turn and call.
    """

    seed: int
    kernel: Kernel
    store: MemoryTurnStore
    wake: Callable[[str], None]
    heard: dict[tuple[str, str], list[Answer]] = field(default_factory=lambda: defaultdict(list))
    met: Counter[str] = field(default_factory=Counter[str])

    def asked(self, turn_id: str, events: Sequence[EventDraft]) -> None:
        """Hear of a commit's questions."""
        for event in events:
            if event.type == "approval.requested":
                self._consider(turn_id, event.data["call_id"])

    def _consider(self, turn_id: str, call_id: str) -> None:
        random = Random(f"{self.seed}/{turn_id}/{call_id}")  # noqa: S311 - a schedule, not a secret
        if random.random() < NEVER:
            return
        soon = self.kernel.now + random.choice([0.001, 0.5, random.uniform(0, LATE_S), 4 * LATE_S])
        for _ in range(2 if random.random() < TWICE else 1):
            kind = random.choice(["approve", "approve", "deny", "edit", "misfit"])
            self.kernel.at(soon + random.random() * 0.05, partial(self._say, turn_id, call_id, kind))

    def _say(self, turn_id: str, call_id: str, kind: str) -> None:
        _, calls = self.store.load(turn_id) or (None, ())
        call = next(each for each in calls if each.call_id == call_id)
        given = {"edit": {**call.arguments, "edited": True}, "misfit": {"invalid": True}}.get(kind)
        said = Answer(decision="deny" if kind == "deny" else "approve", reason=kind, arguments=given)
        if self.store.transact(turn_id, partial(answer, call_id=call_id, said=said)):
            self.heard[turn_id, call_id].append(said)
            self.met[f"heard {kind}"] += 1
            self.wake(turn_id)
        else:
            self.met["stale"] += 1

    def breaches(self, turn_id: str, events: Sequence[Event], calls: Sequence[Call]) -> Iterator[str]:
        """What is wrong with a finished turn's questions and answers."""
        told = Counter((event.type, event.data.get("call_id")) for event in events)
        for call in calls:
            requested, resolved = (told[f"approval.{word}", call.call_id] for word in ("requested", "resolved"))
            if requested > 1 or resolved > requested:
                yield f"{call.call_id} asked about {requested} times, resolved {resolved} times"
            yield from self._of_answer(call, self.heard[turn_id, call.call_id], was_resolved=resolved > 0)

    def _of_answer(self, call: Call, heard: Sequence[Answer], *, was_resolved: bool) -> Iterator[str]:
        if len(heard) > 1:
            yield f"{call.call_id}: {len(heard)} answers accepted"
        denied = call.outcome.reason if isinstance(call.outcome, ToolDenied) else None
        said = heard[0] if heard else None
        if denied is DenialReason.APPROVAL:
            self.met["denied"] += 1
            if said is not None and said.decision == "approve":
                yield f"{call.call_id} was approved and is denied"
        if said is not None and said.decision == "deny" and denied not in (DenialReason.APPROVAL, DenialReason.NOT_RUN):
            yield f"{call.call_id} was denied and is {call.outcome}"
        if said is None and denied is DenialReason.APPROVAL and not was_resolved:
            yield f"{call.call_id} expired without a word"
        if said is not None and said.arguments is not None and was_resolved and denied is not DenialReason.VALIDATION:
            self.met["ran edited"] += 1
            if dict(call.arguments) != said.arguments:
                yield f"{call.call_id} ran with other arguments than the person's"
