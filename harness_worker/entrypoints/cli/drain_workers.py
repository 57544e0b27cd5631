"""Asks workers to finish their work and exit, and waits until they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.broker import broker_errors_are_transient
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.errors import ConfigError
from harness_worker.ports import Clock
from harness_worker.wire import DRAIN_COMMAND

ANSWER_S: Final = 1.0
LOOK_S: Final = 0.2
SILENT_ROUNDS: Final = 3
"""How many rounds in a row a worker must miss to count as gone, or as not there at all; a busy one may be late for a
round or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The workers that were asked: those that are gone, and those that still answer."""

    gone: tuple[str, ...]
    left: tuple[str, ...]


def drain_workers(addresses: Addresses, clock: Clock, names: Sequence[str], wait_s: float) -> Drained:
    """Ask workers to drain, all that answer or those with these names, and wait until they are gone.

    Args:
        addresses: They say where the broker is.
        clock: For waiting.
        names: ``ROLE@HOST`` each; empty: all workers.
        wait_s: How long to wait, in seconds.

    Raises:
        TransientError: The broker does not answer, or refuses.
        ConfigError: No worker with one of these names answers; then none is asked.
    """
    with closing(
        make_app(addresses.settings, redis_url=addresses.redis_url or "", broker_url=addresses.broker_url)
    ) as app:
        workers = _Workers(app.control)
        with broker_errors_are_transient():
            asked = _chosen(_living(workers, names), names)
            if not asked:  # a message without recipients would go to all workers
                return Drained(gone=(), left=())
            workers.draining(asked, begin=True)
            return _await_gone(workers, clock, asked, wait_s)


class _Workers:
    def __init__(self, control: Any) -> None:  # noqa: ANN401 - Celery has no types
        self._control = control

    def draining(self, names: Sequence[str] | None = None, *, begin: bool = False) -> dict[str, bool]:
        """The workers that answer, of ``names`` or all, and whether each is draining; ``begin`` asks them to.

        Workers of somebody else's on the same broker answer with an error, and are left out.
        """
        answers: list[dict[str, dict[str, bool]]] = self._control.broadcast(
            DRAIN_COMMAND,
            arguments={"begin": begin},
            destination=names,
            reply=True,
            timeout=ANSWER_S,
            limit=None if names is None else len(names),
        )
        told = (each for answer in answers for each in answer.items())
        return {name: said["draining"] for name, said in told if "draining" in said}


def _living(workers: _Workers, names: Sequence[str]) -> dict[str, bool]:
    """The workers that answer; asked again while one of ``names`` does not, or always without names."""
    living = workers.draining()
    for _ in range(1, SILENT_ROUNDS):
        missing = [name for name in names if name not in living]
        if missing or not names:
            living |= workers.draining(missing or None)
    return living


def _chosen(living: Mapping[str, bool], names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if name not in living]
    if unknown:
        raise ConfigError(
            f"no worker {', '.join(unknown)} answers; those that do: {', '.join(sorted(living)) or 'none'}"
        )
    return list(dict.fromkeys(names)) or sorted(living)


def _await_gone(workers: _Workers, clock: Clock, asked: list[str], wait_s: float) -> Drained:
    """Wait until they are gone; a worker of the same name that is not draining was started since."""
    give_up_at = clock.monotonic() + wait_s
    hear_out_until = give_up_at + SILENT_ROUNDS * (ANSWER_S + LOOK_S)
    left: dict[str, int] = dict.fromkeys(asked, 0)
    while left and clock.monotonic() < (hear_out_until if any(left.values()) else give_up_at):
        clock.wait(LOOK_S)
        answered = workers.draining([*left])
        silent = {name: 0 if name in answered else rounds + 1 for name, rounds in left.items()}
        left = {name: rounds for name, rounds in silent.items() if answered.get(name, rounds < SILENT_ROUNDS)}
    return Drained(gone=tuple(name for name in asked if name not in left), left=tuple(left))
