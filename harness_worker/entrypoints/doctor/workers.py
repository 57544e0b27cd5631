"""The workers that answer, and whether they can do what the catalogue promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from kombu.exceptions import KombuError

from harness_worker.adapters.celery.app import make_app
from harness_worker.entrypoints.doctor.database import PublishedAgent
from harness_worker.entrypoints.doctor.finding import Finding, ok, wrong
from harness_worker.entrypoints.doctor.places import Places
from harness_worker.entrypoints.roles import Role
from harness_worker.entrypoints.worker_name import role_of
from harness_worker.errors import TransientError
from harness_worker.wire import TOOL_TASK_PREFIX

ANSWER_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker that answered.

    Args:
        name: ``ROLE@HOST`` or ``ROLE-N@HOST``.
        tasks: The Celery tasks it runs.
        queues: What it consumes.
    """

    name: str
    tasks: frozenset[str]
    queues: tuple[str, ...]

    @property
    def role(self) -> str:
        """What it does: ``coordinator`` or ``tools``."""
        return role_of(self.name)


def living_workers(places: Places, timeout_s: float = ANSWER_S) -> list[Worker]:
    """The workers that answer within ``timeout_s``, by name.

    Raises:
        TransientError: The broker does not answer.
    """
    with closing(make_app(places.settings, redis_url=places.redis_url or "", broker_url=places.broker_url)) as app:
        control: Any = app.control
        try:
            return _asked(control.inspect, timeout_s)
        except (KombuError, OSError) as silent:
            raise TransientError(f"the broker does not answer: {silent}") from silent


def _asked(inspect: Callable[..., Any], timeout_s: float) -> list[Worker]:
    names = sorted(inspect(timeout=timeout_s).ping() or {})
    if not names:
        return []
    told = inspect(names, timeout=timeout_s)
    tasks: dict[str, list[str]] = told.registered() or {}
    queues: dict[str, list[dict[str, Any]]] = told.active_queues() or {}
    return [
        Worker(
            name=name,
            tasks=frozenset(tasks.get(name, [])),
            queues=tuple(queue["name"] for queue in queues.get(name, [])),
        )
        for name in names
    ]


def check_workers(workers: Sequence[Worker]) -> Iterator[Finding]:
    """Whether each role has somebody."""
    counts = Counter(worker.role for worker in workers)
    for role in Role:
        mine = [worker for worker in workers if worker.role == role]
        if mine:
            queues = ", ".join(sorted({queue for worker in mine for queue in worker.queues}))
            yield ok("workers", f"{counts[role]} {role}: {', '.join(each.name for each in mine)}; queues {queues}")
        else:
            mend = f"start one: harness worker --role {role} --app package.module:registry"
            yield wrong("workers", f"no {role} worker answers within {ANSWER_S:g} s", mend)


def check_catalogue(agents: Sequence[PublishedAgent], workers: Sequence[Worker] | None) -> Iterator[Finding]:
    """Whether there are agents, and somebody serves each of their tools.

    Args:
        agents: What is published.
        workers: Who answers; ``None`` if nobody could be asked.
    """
    if not agents:
        mend = "start a worker with --app package.module:registry: workers publish what they serve"
        yield wrong("catalogue", "no agent is published", mend)
        return
    names = ", ".join(agent.name for agent in agents)
    served = None if workers is None else {task for worker in workers for task in worker.tasks}
    missing = {agent.name: _missing(agent, served) for agent in agents}
    for agent in agents:
        if missing[agent.name]:
            said = f"nobody serves {', '.join(missing[agent.name])} of agent {agent.name}"
            yield wrong("catalogue", said, f"start a worker: harness worker --role tools --app {agent.app or 'M:R'}")
    if not any(missing.values()):
        yield ok("catalogue", f"{len(agents)} published: {names}" + ("; every tool is served" if served else ""))


def _missing(agent: PublishedAgent, served: set[str] | None) -> list[str]:
    return [] if served is None else [tool for tool in agent.tools if TOOL_TASK_PREFIX + tool not in served]
