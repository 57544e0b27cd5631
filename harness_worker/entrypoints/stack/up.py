"""``harness up``: one supervised group of processes on one home."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from harness_worker.adapters.embedded.ports import LOOPBACK, listening_socket, port_of
from harness_worker.adapters.sql.catalogue import forget_agents
from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.apps import check_app
from harness_worker.entrypoints.stack.child import Child, ChildSpec
from harness_worker.entrypoints.stack.embedded_redis import ensure_redis
from harness_worker.entrypoints.stack.info import ProcessInfo, StackInfo, publish
from harness_worker.entrypoints.stack.leftovers import end_leftovers
from harness_worker.entrypoints.stack.logs import LogWriter
from harness_worker.entrypoints.stack.plan import StackPlan, flower_spec, service_specs
from harness_worker.entrypoints.stack.probes import check_broker, gateway_is_ready
from harness_worker.entrypoints.stack.signals import StopRequested, StopSignal, stop_on_signals
from harness_worker.entrypoints.stack.supervisor import Supervisor

Announce = Callable[[StackInfo], None]


def run_up(plan: StackPlan, log: LogWriter, announce: Announce) -> None:
    """Run a stack until it is asked to stop; returns once none of its processes is left.

    Args:
        plan: What to run.
        log: Where the logs of all its processes go.
        announce: Called once, when everything is ready.

    Raises:
        ConfigError: An option, a setting or the app is wrong.
        TransientError: A given broker, Redis or database does not answer.
        HomeInUse: Another stack runs in the same home.
        StartFailed: One of its processes does not start.
        KeyboardInterrupt: Ctrl-C was pressed before it was ready.
    """
    check_app(plan.app)  # before anything is started
    home = plan.home
    home.prepare()
    with home.locked(plan.only_for, plan.lock), stop_on_signals() as stop:
        end_leftovers(home, log)
        with ExitStack() as sockets:
            listener = sockets.enter_context(listening_socket(plan.port))
            pages = plan.flower and sockets.enter_context(listening_socket(plan.flower.port, option="--flower-port"))
            try:
                _Up(plan, log, stop, listener, pages).run(announce)
            except StopRequested:
                log.line("up", "stopped before it was ready")
                if stop.interrupted:
                    raise KeyboardInterrupt from None
            finally:
                home.stack_file.unlink(missing_ok=True)


class _Up:
    def __init__(
        self, plan: StackPlan, log: LogWriter, stop: StopSignal, listener: socket.socket, pages: socket.socket | None
    ) -> None:
        self._plan = plan
        self._log = log
        self._stop = stop
        self._listener = listener
        self._pages = pages
        self._gateway_url = f"http://{LOOPBACK}:{port_of(listener)}"
        self._redis_url = ""
        grace_s = plan.settings.grace_s
        self._supervisor = Supervisor(stop, log, grace_s=grace_s, on_change=self._publish)

    def run(self, announce: Announce) -> None:
        broker_url = self._plan.settings.broker_url
        if broker_url is not None:
            check_broker(broker_url)
        with self._supervisor as supervisor:
            self._redis_url = ensure_redis(self._plan, supervisor, self._log)
            self._migrate()
            self._start(service_specs(self._plan, self._redis_url, self._listener.fileno()))
            self._start(self._flower_specs())  # after the workers, so that it sees them as soon as it is ready
            announce(self._publish())
            supervisor.watch()

    def _start(self, specs: Sequence[ChildSpec]) -> None:
        children = [Child(spec, self._plan.home, self._log) for spec in specs]
        for child in children:
            self._supervisor.start(child)
        self._supervisor.await_ready(children, self._is_ready)

    def _flower_specs(self) -> list[ChildSpec]:
        if self._plan.flower is None or self._pages is None:
            return []
        return [flower_spec(self._plan, self._plan.flower.access, self._redis_url, self._pages.fileno())]

    def _migrate(self) -> None:
        before, after = upgrade(self._plan.database_url)
        if before != after:
            self._log.line("up", f"database brought from {before or 'nothing'} to {after}")
        if self._plan.settings.database_url is None:
            forget_agents(self._plan.database_url)

    def _is_ready(self, child: Child) -> bool:
        if child.role == "gateway":
            return gateway_is_ready(self._gateway_url)
        return child.ready_said

    def _publish(self) -> StackInfo:
        info = StackInfo(
            gateway_url=self._gateway_url,
            redis_url=self._redis_url,
            broker_url=self._plan.settings.broker_url,
            database_url=self._plan.database_url,
            pid=os.getpid(),
            home=self._plan.home.path,
            processes=tuple(ProcessInfo(role=child.role, pid=child.pid) for child in self._supervisor.children),
            flower_url=self._flower_url(),
            only_for=self._plan.only_for,
            app=self._plan.app,
        )
        publish(self._plan.home, info)
        return info

    def _flower_url(self) -> str | None:
        if self._plan.flower is None or self._pages is None:
            return None
        return self._plan.flower.access.url(LOOPBACK, port_of(self._pages))
