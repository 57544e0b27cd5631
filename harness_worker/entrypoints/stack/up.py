"""``harness up``: one supervised group of processes on one home."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from harness_worker.adapters.embedded.ports import LOOPBACK, listening_socket, port_of
from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.entrypoints.stack.child import Child, ChildSpec
from harness_worker.entrypoints.stack.embedded_redis import ensure_redis
from harness_worker.entrypoints.stack.info import ProcessInfo, StackInfo, publish
from harness_worker.entrypoints.stack.leftovers import end_leftovers
from harness_worker.entrypoints.stack.logs import LogWriter
from harness_worker.entrypoints.stack.plan import StackPlan, service_specs
from harness_worker.entrypoints.stack.probes import gateway_is_ready
from harness_worker.entrypoints.stack.signals import StopRequested, StopSignal, stop_on_signals
from harness_worker.entrypoints.stack.supervisor import Supervisor

Announce = Callable[[StackInfo], None]


def run_up(plan: StackPlan, log: LogWriter, announce: Announce) -> None:
    """Run a stack until it is asked to stop; returns when no process of it is left.

    Args:
        plan: What to run.
        log: Where all its processes' logs go.
        announce: Called once, when everything is ready.

    Raises:
        ConfigError: Something it was told is wrong.
        TransientError: A given Redis or database does not answer.
        HomeInUse: Another stack runs on the same home.
        StartFailed: A process of it does not start.
    """
    _ = plan.app  # before anything is started
    home = plan.home
    home.prepare()
    with home.locked(), stop_on_signals() as stop:
        end_leftovers(home, log)
        with listening_socket(plan.port) as listener:
            try:
                _Up(plan, log, stop, listener).run(announce)
            except StopRequested:
                log.line("up", "stopped before it was ready")
            finally:
                home.stack_file.unlink(missing_ok=True)


class _Up:
    def __init__(self, plan: StackPlan, log: LogWriter, stop: StopSignal, listener: socket.socket) -> None:
        self._plan = plan
        self._log = log
        self._stop = stop
        self._listener = listener
        self._gateway_url = f"http://{LOOPBACK}:{port_of(listener)}"
        self._redis_url = ""
        grace_s = plan.settings.grace_s
        self._supervisor = Supervisor(stop, log, grace_s=grace_s, on_change=self._publish)

    def run(self, announce: Announce) -> None:
        with self._supervisor as supervisor:
            self._redis_url = ensure_redis(self._plan, supervisor, self._child, self._log)
            self._migrate()
            specs = service_specs(self._plan, self._redis_url, self._listener.fileno())
            services = [self._child(spec) for spec in specs]
            for service in services:
                supervisor.start(service)
            supervisor.await_ready(services, self._is_ready)
            announce(self._publish())
            supervisor.watch()

    def _child(self, spec: ChildSpec) -> Child:
        return Child(spec, self._plan.home, self._log)

    def _migrate(self) -> None:
        before, after = upgrade(self._plan.database_url)
        if before != after:
            self._log.line("up", f"database brought from {before or 'nothing'} to {after}")

    def _is_ready(self, child: Child) -> bool:
        if child.role == "gateway":
            return gateway_is_ready(self._gateway_url)
        return child.ready_said

    def _publish(self) -> StackInfo:
        info = StackInfo(
            gateway_url=self._gateway_url,
            redis_url=self._redis_url,
            database_url=self._plan.database_url,
            pid=os.getpid(),
            home=self._plan.home.path,
            processes=tuple(ProcessInfo(role=child.role, pid=child.pid) for child in self._supervisor.children),
        )
        publish(self._plan.home, info)
        return info
