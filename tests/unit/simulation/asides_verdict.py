"""What must hold of reflections, summaries and prompts in a whole journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness_worker.core.asides import NO_BUDGET
from harness_worker.core.outcomes import is_error
from harness_worker.core.records import Call, Event, Turn
from harness_worker.ports import ModelRequest
from tests.unit.simulation.prompts import refused

STEP, REFLECTION, COMPACTION = "model.completed", "reflection.completed", "compaction.completed"
Asked = Mapping[str, ModelRequest]
"""What a model was asked, by the text that it said; no text is said twice."""


def aside_breaches(turn: Turn, events: Sequence[Event], calls: Sequence[Call], asked: Asked) -> Iterator[str]:
    """Everything wrong with what one turn asked its model."""
    spoken = [event for event in events if event.type in (STEP, REFLECTION, COMPACTION)]
    yield from _of_charges(turn, spoken)
    yield from _of_places(events)
    yield from _of_reflections(turn, spoken, calls)
    yield from _of_prompts(spoken, asked)


def _of_charges(turn: Turn, spoken: Sequence[Event]) -> Iterator[str]:
    told = sum(count for event in spoken for name, count in event.data["usage"].items() if name.endswith("_tokens"))
    if turn.used.tokens != told:
        yield f"{turn.used.tokens} tokens charged for {told}"
    if turn.used.reflections > turn.budget.max_reflections:
        yield f"{turn.used.reflections} reflections of {turn.budget.max_reflections}"
    heard = [event for event in spoken if event.type == REFLECTION and not event.data["is_stub"]]
    stubs = [event.data["text"] for event in spoken if event.type == REFLECTION and event.data["is_stub"]]
    if not len(heard) <= turn.used.reflections <= len(heard) + len([stub for stub in stubs if stub != NO_BUDGET]):
        yield f"{turn.used.reflections} reflections charged for {len(heard)} and {stubs}"


def _of_places(events: Sequence[Event]) -> Iterator[str]:
    """At most one of a kind before each step's word, within its step."""
    seen = Counter((event.type, event.data["step"]) for event in events if event.type in (REFLECTION, COMPACTION))
    if any(times > 1 for times in seen.values()):
        yield f"asides twice: {seen}"
    step = -1
    spoke = False
    for event in events:
        if event.type == "step.started":
            step, spoke = event.data["step"], False
        spoke = spoke or event.type == STEP
        if event.type in (REFLECTION, COMPACTION) and (event.data["step"] != step or spoke):
            yield f"{event.type} out of its place at seq {event.seq}"


def _of_reflections(turn: Turn, spoken: Sequence[Event], calls: Sequence[Call]) -> Iterator[str]:
    """Each step that spoke after a failure had thought before, and reads what it thought."""
    thoughts = {event.data["step"]: event.data for event in spoken if event.type == REFLECTION}
    for event in spoken:
        step = event.data["step"]
        failed = any(c.step == step - 1 and c.outcome is not None and is_error(c.outcome) for c in calls)
        if event.type == STEP and failed and step not in thoughts:
            yield f"step {step} did not reflect on a failure"
    notes = dict(turn.preparation.notes) if turn.preparation is not None else dict[str, str]()
    told = {str(step): "" if data["is_stub"] else data["text"] for step, data in thoughts.items()}
    if notes != told:
        yield f"notes {notes} for reflections {told}"


def _of_prompts(spoken: Sequence[Event], asked: Asked) -> Iterator[str]:
    """A provider would take each; it begins with the one before it, unless a summary came between."""
    before: tuple[Any, ...] = ()
    for event in spoken:
        if event.data.get("is_stub"):
            continue
        request = asked[event.data["text"]]
        yield from refused(request.messages)
        messages = tuple((message.role, message.content) for message in request.messages)
        if event.type == COMPACTION:
            before = ()
        elif event.type == STEP:
            if messages[: len(before)] != before:
                yield f"the prompt of step {event.data['step']} is not the one before it, and more"
            before = messages
