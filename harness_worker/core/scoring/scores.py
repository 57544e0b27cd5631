"""The rules of a score that is due: who may judge now, whose score counts, and when it is given up.

What a model finds worth remembering from a turn is due in the same way; its row has no score.

A row is added by the commit that ends the turn. Its attempt rises with each claim and guards the score as a fence
guards a turn: the score of a judge that comes back after another has begun is dropped. So exactly one score is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from harness_worker.core.registration.judges import Score
from harness_worker.core.text import clean_text

ATTEMPTS: Final = 3
"""How many times a judge is asked before its error is written instead of a score."""

SEND_GRACE_S: Final = 10.0
"""How long the message sent at the turn's end may take before another is sent."""

LEASE_SLACK_S: Final = 5.0
"""How long after the end of a judge's own time its process is presumed dead."""

PAUSE_S: Final = 2.0
"""How long to wait before a judge that failed is asked again, for each attempt so far."""

LONGEST_PAUSE_S: Final = 300.0
"""The longest such pause, even if the model's provider asks for a longer one."""

LAPSES_S: Final = 86_400.0
"""How long after the turn's end a score stays due that no worker can give."""

MOST_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One judge's score of one turn, due or given.

    Args:
        turn_id: The turn.
        judge: The judge.
        attempt: How many times judging was begun.
        lease_until: Until when the latest attempt is presumed under way.
        due_at: When somebody must look; ``None`` once the score was given or given up.
        score: The score, from 0 to 1.
        reason: The judge's reason for it.
        error: Why there is no score.
        at: When it was given, or given up.
    """

    turn_id: str
    judge: str
    attempt: int = 0
    lease_until: float | None = None
    due_at: float | None = None
    score: float | None = None
    reason: str = ""
    error: str | None = None
    at: float | None = None


def due(turn_id: str, judge: str, *, now: float) -> ScoreRow:
    """The row of a score that has yet to be given."""
    return ScoreRow(turn_id=turn_id, judge=judge, due_at=now + SEND_GRACE_S)


def begin_judging(row: ScoreRow, now: float, *, judge_s: float) -> tuple[ScoreRow, int | None]:
    """Begin an attempt and give its number, or ``None`` if the score was given or another attempt is under way.

    A score whose attempts all died is given up here.
    """
    if row.at is not None or (row.lease_until is not None and row.lease_until >= now):
        return row, None
    if row.attempt >= ATTEMPTS:
        return _given_up(row, now, f"none of {ATTEMPTS} attempts came to an end"), None
    until = now + judge_s + LEASE_SLACK_S
    return replace(row, attempt=row.attempt + 1, lease_until=until, due_at=until), row.attempt + 1


def give(row: ScoreRow, now: float, *, attempt: int, score: Score | None) -> tuple[ScoreRow, bool]:
    """Record that the judge is done, with its score, if one was due; ``False`` if it comes too late."""
    if not _is_of(row, attempt):
        return row, False
    if score is None:
        return _over(row, now), True
    return replace(_over(row, now), score=score.value, reason=clean_text(score.reason)[:MOST_CHARS]), True


def miss(row: ScoreRow, now: float, *, attempt: int, why: str, wished_s: float = 0.0) -> tuple[ScoreRow, bool]:
    """Record that the judge failed, to be asked again after a pause or given up; ``False`` if this comes too late.

    The pause is at least as long as the model's provider asks for (``wished_s``), up to ``LONGEST_PAUSE_S``.
    """
    if not _is_of(row, attempt):
        return row, False
    if attempt >= ATTEMPTS:
        return _given_up(row, now, why), True
    pause_s = min(max(PAUSE_S * attempt, wished_s), LONGEST_PAUSE_S)
    return replace(row, lease_until=None, due_at=now + pause_s), True


def pause_left(row: ScoreRow, now: float) -> tuple[ScoreRow, float]:
    """How many seconds are left of the pause after a failure; the row stays unchanged."""
    if row.due_at is None or row.attempt == 0 or row.lease_until is not None:
        return row, 0.0
    return row, max(0.0, row.due_at - now)


def lapse(row: ScoreRow, now: float, *, ended_at: float) -> tuple[ScoreRow, bool]:
    """Give up a score that no worker can give, a day after the turn's end: a deployment may come until then."""
    is_being_given = row.lease_until is not None and now <= row.lease_until
    if row.at is not None or now < ended_at + LAPSES_S or is_being_given:
        return row, False
    return _given_up(row, now, "nobody was there to give it"), True


def _is_of(row: ScoreRow, attempt: int) -> bool:
    return row.at is None and row.attempt == attempt


def _given_up(row: ScoreRow, now: float, why: str) -> ScoreRow:
    return replace(_over(row, now), error=clean_text(why)[:MOST_CHARS])


def _over(row: ScoreRow, now: float) -> ScoreRow:
    return replace(row, at=now, due_at=None, lease_until=None)
