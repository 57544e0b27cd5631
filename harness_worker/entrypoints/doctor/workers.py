"""Checks which workers answer, and whether they can do what the catalogue promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.broker import broker_errors_are_transient
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.doctor.database import PublishedAgent, PublishedTool
from harness_worker.entrypoints.doctor.finding import Finding, ok, wrong
from harness_worker.entrypoints.worker.name import role_of
from harness_worker.entrypoints.worker.roles import Role
from harness_worker.wire import TOOL_TASK_PREFIX, Priority, turn_queue

ANSWERS_S: Final = (1.0, 3.0)
"""How long answers are waited for, in seconds; the second time if a role or an answer was missing: some are busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker that answered.

    Args:
        name: ``ROLE@HOST`` or ``ROLE-N@HOST``.
        tasks: The Celery tasks it runs.
        queues: The queues that it consumes.
    """

    name: str
    tasks: frozenset[str]
    queues: tuple[str, ...]

    @property
    def role(self) -> str:
        """Its role: ``coordinator`` or ``tools``."""
        return role_of(self.name)


def living_workers(addresses: Addresses) -> list[Worker]:
    """The workers that answer, by name.

    Raises:
        TransientError: The broker does not answer, or refuses.
    """
    with closing(
        make_app(addresses.settings, redis_url=addresses.redis_url or "", broker_url=addresses.broker_url)
    ) as app:
        control: Any = app.control
        with broker_errors_are_transient():
            return answering(control.inspect)


def answering(inspect: Callable[..., Any]) -> list[Worker]:
    """The workers that answer ``celery.app.control.Control.inspect``, by name."""
    found: list[Worker] = []
    for timeout_s in ANSWERS_S:
        found = _asked(inspect, timeout_s)
        if {worker.role for worker in found} >= {*Role} and all(worker.tasks and worker.queues for worker in found):
            break
    return found


def _asked(inspect: Callable[..., Any], timeout_s: float) -> list[Worker]:
    names = sorted(inspect(timeout=timeout_s).ping() or {})
    if not names:
        return []
    told = inspect(names, timeout=timeout_s, limit=len(names))
    tasks: dict[str, list[str]] = told.registered() or {}
    queues: dict[str, list[dict[str, Any]]] = told.active_queues() or {}
    return [
        Worker(
            name=name,
            tasks=frozenset(task.partition(" [")[0] for task in tasks.get(name, [])),  # "tool.pay [rate_limit=1/s]"
            queues=tuple(queue["name"] for queue in queues.get(name, [])),
        )
        for name in names
    ]


def check_workers(workers: Sequence[Worker], home_option: str) -> Iterator[Finding]:
    """Check that each role, and each queue of turns, has a worker; ``home_option`` lets a new one join them."""
    for role in Role:
        mine = [worker for worker in workers if worker.role == role]
        mend = f"start one: harness worker --role {role} --app package.module:registry{home_option}"
        if not mine:
            yield wrong("workers", f"no {role} worker answers within {ANSWERS_S[-1]:g} s", mend)
            continue
        taken = {queue for worker in mine for queue in worker.queues}
        queues = ", ".join(sorted(taken)) or "none"
        yield ok("workers", f"{len(mine)} {role}: {', '.join(each.name for each in mine)}; queues {queues}")
        idle = [queue for queue in map(turn_queue, Priority) if role is Role.COORDINATOR and queue not in taken]
        if idle:
            yield wrong("workers", f"nobody takes the queue {', '.join(idle)}", f"{mend} --queues {','.join(idle)}")


def check_catalogue(
    agents: Sequence[PublishedAgent], workers: Sequence[Worker] | None, home_option: str
) -> Iterator[Finding]:
    """Check that there are agents, and that workers serve each of their tools and its queue.

    Args:
        agents: The published agents.
        workers: The workers that answered; ``None`` if they could not be asked.
        home_option: The option by which a new worker joins them, after a space.
    """
    if not agents:
        mend = (
            f"start a coordinator with --app package.module:registry{home_option}: coordinators publish what they serve"
        )
        yield wrong("catalogue", "no agent is published", mend)
        return
    names = ", ".join(agent.name for agent in agents)
    missing = [finding for agent in agents for finding in _missing(agent, workers, home_option)]
    yield from missing
    if not missing:
        yield ok("catalogue", f"{len(agents)} published: {names}" + ("; every tool is served" if workers else ""))


def _missing(agent: PublishedAgent, workers: Sequence[Worker] | None, home_option: str) -> Iterator[Finding]:
    """Findings about tools that no worker has, and tools whose queue no worker takes."""
    if workers is None:
        return
    mend = f"start a worker: harness worker --role tools --app {agent.app or 'M:R'}{home_option}"
    had = {tool for tool in agent.tools if any(_has(worker, tool) for worker in workers)}
    unknown = [tool.name for tool in agent.tools if tool not in had]
    if unknown:
        yield wrong("catalogue", f"nobody serves {', '.join(unknown)} of agent {agent.name}", mend)
    idle = [tool for tool in agent.tools if tool in had and not any(_takes(worker, tool) for worker in workers)]
    if idle:
        told = ", ".join(f"{tool.name} (queue {tool.queue})" for tool in idle)
        queues = ",".join(sorted({tool.queue for tool in idle if tool.queue is not None}))
        yield wrong("catalogue", f"nobody takes the calls of {told} of agent {agent.name}", f"{mend} --queues {queues}")


def _has(worker: Worker, tool: PublishedTool) -> bool:
    return TOOL_TASK_PREFIX + tool.name in worker.tasks


def _takes(worker: Worker, tool: PublishedTool) -> bool:
    return _has(worker, tool) and (tool.queue is None or tool.queue in worker.queues)
