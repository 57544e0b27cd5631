"""Adds the boundaries between the engine and its ports; the engine itself knows nothing of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from celery.signals import task_postrun

from harness_worker.bootstrap.fleet import Fleet
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.opening import Opened
from harness_worker.core.progress import AskModel, Dispatch, Finished
from harness_worker.core.writes import Go, HandedIn, Started
from harness_worker.faults.injector import Faults
from harness_worker.faults.points import Point
from harness_worker.ports import Admission, Admitted, ModelClient, ModelReply, ModelRequest, SoftDeadline, TurnStore

_Rule = Callable[[Snapshot], Decision[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    """The boundaries before and after a method; ``only_if`` says, given the answer, whether the latter applies."""

    before: Point | None = None
    after: Point | None = None
    only_if: Callable[[Any], bool] = bool


def _always(_answer: object) -> bool:
    return True


def _was_admitted(answer: Admitted) -> bool:
    return answer.answer is Admission.OK


_GATE: Final = {
    "admit": _Around(after=Point.AFTER_ADMIT, only_if=_was_admitted),
    "complete": _Around(after=Point.AFTER_GATE),
    "beat": _Around(before=Point.IN_CALL_HEARTBEAT),
}
_STORE: Final = {
    "beat_turns": _Around(before=Point.IN_VISIT_HEARTBEAT),
    "beat_calls": _Around(before=Point.IN_CALL_HEARTBEAT),
    "overdue": _Around(after=Point.IN_RECONCILER),
}
_PUBLISH: Final = _Around(before=Point.BEFORE_PUBLISH, after=Point.AFTER_PUBLISH, only_if=_always)
_DISPATCHER: Final[Mapping[str, _Around]] = {"advance": _PUBLISH, "chord": _PUBLISH, "chain": _PUBLISH}


def faulty_fleet(fleet: Fleet, faults: Faults) -> Fleet:
    """The fleet, with boundaries around its ports."""
    return replace(
        fleet,
        store=cast("TurnStore", _Store(fleet.store, _STORE, faults)),
        gate=cast("Any", _Bounded(fleet.gate, _GATE, faults)),
        dispatcher=cast("Any", _Bounded(fleet.dispatcher, _DISPATCHER, faults)),
    )


def faulty_models(models: Mapping[str, ModelClient], faults: Faults) -> Mapping[str, ModelClient]:
    """The clients, with boundaries around and during each call."""
    return {name: _Model(client, faults) for name, client in models.items()}


def faulty_deadline(inner: SoftDeadline, faults: Faults) -> SoftDeadline:
    """The soft deadline, with boundaries before and after the body, both within its time."""

    @contextmanager
    def bounded(remaining_s: float, is_revoked: Callable[[], bool]) -> Generator[None]:
        with inner(remaining_s, is_revoked):
            faults.strike(Point.INSIDE_TOOL)
            yield
            faults.strike(Point.AFTER_EFFECT)

    return bounded


def strike_before_ack(faults: Faults) -> None:
    """Add the boundary at which a task of this process is over but its message is not acknowledged."""

    def over(**_: object) -> None:
        faults.strike(Point.BEFORE_ACK)

    task_postrun.connect(over, weak=False)


class _Bounded:
    """Passes every call on to a port, with boundaries around some of them."""

    def __init__(self, inner: object, around: Mapping[str, _Around], faults: Faults) -> None:
        self._inner = inner
        self._around = around
        self._faults = faults

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        method = getattr(self._inner, name)
        around = self._around.get(name)
        return method if around is None else self._bounded(method, around)

    def _bounded(self, method: Callable[..., Any], around: _Around) -> Callable[..., Any]:
        def bounded(*args: object, **named: object) -> Any:  # noqa: ANN401 - what the method answers
            if around.before is not None:
                self._faults.strike(around.before)
            answer = method(*args, **named)
            if around.after is not None and around.only_if(answer):
                self._faults.strike(around.after)
            return answer

        return bounded


class _Store(_Bounded):
    def transact(self, turn_id: str, decide: _Rule, *, follows: bool = False) -> Any:  # noqa: ANN401 - any result
        inner = cast("TurnStore", self._inner)
        answer = inner.transact(turn_id, lambda snapshot: self._decided(decide(snapshot)), follows=follows)
        point = _after(answer)
        if point is not None:
            self._faults.strike(point)
        return answer

    def _decided(self, decision: Decision[Any]) -> Decision[Any]:
        """Strike after a coordinator has decided, under the turn's lock."""
        if decision.turn is not None and isinstance(decision.result, _STEPS):
            is_end = decision.turn.status.is_final
            self._faults.strike(Point.IN_FINALIZE if is_end else Point.BEFORE_COMMIT)
        return decision


_STEPS: Final = (Finished, Dispatch, AskModel)


def _after(answer: object) -> Point | None:
    """The boundary that follows a transaction with the result ``answer``."""
    match answer:
        case Opened():
            return Point.AFTER_CLAIM
        case Started(go=Go.RUN):
            return Point.AFTER_ADMIT
        case HandedIn(go=Go.PASS | Go.WAKE):
            return Point.AFTER_RECEIPT
        case Finished() | Dispatch() | AskModel():
            return Point.AFTER_COMMIT
        case _:
            return None


class _Model:
    """Implements ``ports.ModelClient``, with boundaries."""

    def __init__(self, inner: ModelClient, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def complete(self, request: ModelRequest) -> ModelReply:
        self._faults.strike(Point.BEFORE_MODEL)
        reply = self._inner.complete(replace(request, on_text=self._heard(request.on_text)))
        self._faults.strike(Point.AFTER_MODEL)
        return reply

    def _heard(self, tell: Callable[[str], None]) -> Callable[[str], None]:
        def heard(text: str) -> None:
            tell(text)
            self._faults.strike(Point.MID_STREAM)

        return heard
