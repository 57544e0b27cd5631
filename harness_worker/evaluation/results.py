"""The result of a cell: one line in a file of results, and one line of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict

from harness_worker.core.budget import Usage
from harness_worker.evaluation.cells import Cell
from harness_worker.evaluation.checking import PASSING, Check
from harness_worker.evaluation.expecting import ending, unmet
from harness_worker.wire import FINAL_STATUSES, JsonObject, TurnStatus, has_ended

REFUSED: Final = "refused"
"""The status of a cell whose turn the gateway did not accept."""


_USED: Final = tuple(field.name for field in fields(Usage) if field.name != "reflections")
"""What a turn's usage has; the gateway does not report reflections."""

_SCORED: Final = frozenset({"judge", "score", "at"})
"""What a score must have to be compared."""


def _complete(usage: dict[str, int | float]) -> dict[str, int | float]:
    """The usage with 0 for what it does not name; its line may be of another version."""
    return {**dict.fromkeys(_USED, 0), **usage}


def _as_score(score: dict[str, Any]) -> dict[str, Any]:
    if not score.keys() >= _SCORED:
        raise ValueError("no score")
    return score


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was observed of a cell.

    Args:
        turns: The turns that it got to, in order, shaped as in the HTTP API; the last one with its scores.
        refused: The gateway's message, if it refused the next turn.
    """

    turns: tuple[JsonObject, ...]
    refused: str | None = None


class Result(BaseModel):
    """The result of a cell; its fields are the members of its line.

    Args:
        sweep: The sweep's name.
        agent: The agent that was asked.
        case: The case's id.
        repeat: The number of the repeat, from 1.
        asked: A digest of what was asked.
        expected: A digest of what the answer was compared with.
        passed: Whether every expectation was met.
        why: The expectations that were not met.
        status: The last turn's status, or ``refused``.
        stop_reason: Why the last turn ended.
        turn_id: The last turn.
        session_id: The session of all turns.
        output_text: The last answer.
        scores: Scores of the last turn by judges and a check, as ``GET /v1/turns/{id}/scores`` returns them.
        usage: What all turns used, by name.
        seconds: How long the turns ran, each from its start to its end, without time in a queue.
        created_at: When the first turn was created.
        finished_at: When the last turn ended.
    """

    model_config = ConfigDict(frozen=True)

    sweep: str
    agent: str
    case: str
    repeat: int
    asked: str
    expected: str
    passed: bool
    why: tuple[str, ...]
    status: str
    stop_reason: str | None
    turn_id: str | None
    session_id: str
    output_text: str
    scores: tuple[Annotated[dict[str, Any], AfterValidator(_as_score)], ...]
    usage: Annotated[dict[str, int | float], AfterValidator(_complete)]
    seconds: float
    created_at: str | None
    finished_at: str | None

    @property
    def is_settled(self) -> bool:
        """Whether it is final: its turn has ended, and all its scores have been given or given up."""
        return self.status in FINAL_STATUSES and all(score["at"] for score in self.scores)

    @property
    def is_void(self) -> bool:
        """Whether it says nothing of the agent: its turn failed, or somebody stopped it, which was not expected."""
        return not self.passed and self.status in (TurnStatus.FAILED, TurnStatus.CANCELLED)


def result_of(cell: Cell, found: Found, check: Check | None) -> Result:
    """Compare what was observed of a cell with what was expected."""
    turns = found.turns
    last: JsonObject = turns[-1] if turns else {}
    scores = _scored(cell, last, check) if turns else ()
    why = tuple(_why(cell, found, scores))
    return Result(
        sweep=cell.sweep,
        agent=cell.agent,
        case=cell.case.id,
        repeat=cell.repeat,
        asked=cell.asked,
        expected=cell.expected(check.name if check else None),
        passed=not why,
        why=why,
        status=last["status"] if found.refused is None else REFUSED,
        stop_reason=last.get("stop_reason"),
        turn_id=last.get("id"),
        session_id=cell.session_id,
        output_text=last.get("output_text", ""),
        scores=scores,
        usage=_summed(turns),
        seconds=round(sum(map(_ran_s, turns)), 6),
        created_at=turns[0]["created_at"] if turns else None,
        finished_at=last.get("finished_at"),
    )


def _scored(cell: Cell, turn: JsonObject, check: Check | None) -> tuple[JsonObject, ...]:
    given: tuple[JsonObject, ...] = tuple(turn.get("scores", ()))
    return (*given, check(cell.case, turn)) if check is not None and has_ended(turn) else given


def _why(cell: Cell, found: Found, scores: Sequence[JsonObject]) -> Iterator[str]:
    if found.refused is not None:
        yield f"the gateway does not take it: {found.refused}"
        return
    last = found.turns[-1]
    if not has_ended(last):
        yield _waiting(last)
    elif len(found.turns) < len(cell.case.input):
        yield f"turn {len(found.turns)} of {len(cell.case.input)} ended as {ending(last)}"
    else:
        yield from unmet(cell.case.expect, found.turns)
        yield from _unchecked(scores[len(last.get("scores", ())) :])


def _unchecked(scores: Sequence[JsonObject]) -> Iterator[str]:
    for score in scores:
        if score["error"] is not None:
            yield f"{score['judge']} raised {score['error']}"
        elif score["score"] < PASSING:
            told = f": {score['reason']}" if score["reason"] else ""
            yield f"{score['judge']} scored {score['score']:g}{told}"


def _waiting(turn: JsonObject) -> str:
    if turn["status"] == TurnStatus.REQUIRES_ACTION or turn.get("subagent_actions"):
        asked = (*turn["required_actions"], *turn.get("subagent_actions", ()))
        tools = ", ".join(action["tool"] for action in asked)
        return f"the turn waits for a person to approve {tools}"
    return f"the turn is still {turn['status']}"


def _summed(turns: Sequence[JsonObject]) -> dict[str, int | float]:
    return {name: sum(turn["usage"][name] for turn in turns) for name in _USED}


def _ran_s(turn: JsonObject) -> float:
    if not (turn["started_at"] and turn["finished_at"]):
        return 0.0
    return (datetime.fromisoformat(turn["finished_at"]) - datetime.fromisoformat(turn["started_at"])).total_seconds()
