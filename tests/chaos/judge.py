"""Judges whether the promise held: each turn ended, each call has one result, each effect happened as reported."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, TypeAlias

from tests.chaos.outside import CallKey, Outside
from tests.e2e.soundness import check_sound

Json: TypeAlias = dict[str, Any]

DOUBTS: Final = ("outcome_unknown: ", "worker_lost: ")
_LATE: Final = re.compile(r"late result of ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A turn as a client saw it when it ended, with its messages and all its events."""

    turn: Json
    events: list[Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a storm did and what became of the turns in it.

    Args:
        turns: How many were posted.
        ended: How many ended.
        stuck: How many did not, long after the storm.
        kills: Processes killed.
        redeliveries: Visits and calls that somebody else took over.
        faults: Everything else that went wrong on purpose.
        effects: Effects that the outside service counted.
        effects_lost: Calls reported as done whose effect never happened.
        effects_doubled: Calls whose effect happened more than once.
        effects_forbidden: Calls reported as not run, or as cut before they began, that had an effect.
        effects_doubtful: Calls reported as in doubt.
        effects_confirmed: How many of those in doubt did have their effect.
        late_commits: Turns that changed after their end.
        late_rejected: Results that came too late and were dropped.
        unsound: Everything else that was wrong with a turn, its calls or its events.
        left_behind: Processes, connections, keys and temporary files that were left over.
        recovery_s_max: The longest silence of a turn under way, in seconds, whatever struck it meanwhile.
        recovery_s_a_loss_max: The most time that a single loss cost, in seconds: a silence without the run that ended
            it, divided by the number of attempts that were lost in it.
    """

    turns: int
    ended: int
    stuck: int
    kills: int
    redeliveries: int
    faults: int
    effects: int
    effects_lost: int
    effects_doubled: int
    effects_forbidden: int
    effects_doubtful: int
    effects_confirmed: int
    late_commits: int
    late_rejected: int
    unsound: tuple[str, ...]
    left_behind: tuple[str, ...]
    recovery_s_max: float
    recovery_s_a_loss_max: float

    @property
    def is_kept(self) -> bool:
        """Whether the promise held, in a storm in which something was killed, redelivered and broken."""
        wrong = (self.stuck, self.effects_lost, self.effects_doubled, self.effects_forbidden, self.late_commits)
        was_rough = min(self.kills, self.redeliveries, self.faults) > 0
        return was_rough and not any(wrong) and not self.unsound and not self.left_behind

    def to_json(self) -> str:
        """The verdict as one line of JSON."""
        return json.dumps({"promise_held": self.is_kept, **asdict(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Roughness:
    """What was done to the fleet.

    Args:
        posted: Turns posted.
        kills: Processes killed.
        faults: Everything else that was done.
        log: The fleet's log.
        left_behind: What was left over at the end.
    """

    posted: int
    kills: int
    faults: int
    log: str
    left_behind: Sequence[str]


def judge(ended: Sequence[Ended], later: Sequence[Ended], outside: Outside, rough: Roughness) -> Verdict:
    """Judge turns as they were when they ended, and as they are much later."""
    calls = {(each.turn["id"], call["call_id"]): call for each in ended for call in each.turn["calls"]}
    writes = {key: call for key, call in calls.items() if call["tool"] != "peek"}
    doubtful = {key for key, call in writes.items() if call["content"].startswith(DOUBTS)}
    done = {key for key, call in writes.items() if call["outcome"] == "ToolExecutionResult"}
    never = {key for key, call in writes.items() if call["outcome"] == "ToolDenied"}
    known = outside.effects
    silences = [silence for each in ended for silence in _silences(each)]
    return Verdict(
        turns=rough.posted,
        ended=len(ended),
        stuck=rough.posted - len(ended),
        kills=rough.kills,
        redeliveries=_redeliveries(ended, calls.values()),
        faults=rough.faults,
        effects=known.total(),
        effects_lost=sum(known[key] == 0 for key in done),
        effects_doubled=_doubled(known, {each.turn["id"] for each in ended}),
        effects_forbidden=sum(known[key] > 0 for key in never),
        effects_doubtful=len(doubtful),
        effects_confirmed=sum(known[key] > 0 for key in doubtful),
        late_commits=sum(before != after for before, after in zip(ended, later, strict=True)),
        late_rejected=len(_LATE.findall(rough.log)),
        unsound=tuple(complaint for each in ended for complaint in _complaints(each)),
        left_behind=tuple(rough.left_behind),
        recovery_s_max=round(max((each.duration_s for each in silences), default=0.0), 3),
        recovery_s_a_loss_max=round(max((each.a_loss_s for each in silences), default=0.0), 3),
    )


def _doubled(effects: Counter[CallKey], turns: set[str]) -> int:
    return sum(times > 1 for (turn, _), times in effects.items() if turn in turns)


def _redeliveries(ended: Iterable[Ended], calls: Iterable[Json]) -> int:
    visits = sum(event["type"] == "turn.redelivered" for each in ended for event in each.events)
    return visits + sum(call["attempt"] - 1 for call in calls)


def _complaints(each: Ended) -> list[str]:
    complaints: list[str] = []
    try:
        check_sound(each.turn, each.events, [])
    except AssertionError as wrong:
        complaints.append(f"{each.turn['id']}: {str(wrong)[:500]}")
    if each.turn["status"] != "completed":
        complaints.append(f"{each.turn['id']} is {each.turn['status']}: {each.turn['stop_reason']}")
    return complaints


@dataclass(frozen=True, slots=True, kw_only=True)
class _Silence:
    """The time between two consecutive events of a turn that was under way.

    Args:
        duration_s: Its length, in seconds.
        run_s: How long the call's run took that ended it, in seconds; 0: something else ended it.
        losses: How many attempts of that call were lost.
    """

    duration_s: float
    run_s: float
    losses: int

    @property
    def a_loss_s(self) -> float:
        return (self.duration_s - self.run_s) / max(1, self.losses)


def _silences(each: Ended) -> list[_Silence]:
    losses = {call["call_id"]: _losses(call) for call in each.turn["calls"]}
    return [_silence(before, after, losses) for before, after in pairwise(each.events[1:])]


def _silence(before: Json, after: Json, losses: Mapping[str, int]) -> _Silence:
    begin, end = (datetime.fromisoformat(event["at"]) for event in (before, after))
    return _Silence(
        duration_s=(end - begin).total_seconds(),
        run_s=after["data"].get("elapsed_ms", 0) / 1_000,
        losses=losses.get(after["data"].get("call_id", ""), 0),
    )


def _losses(call: Json) -> int:
    return call["attempt"] - 1 + call["content"].startswith(DOUBTS)
