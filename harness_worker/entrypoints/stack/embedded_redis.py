"""The Redis of a stack: a given one, or an embedded one that survives crashes."""

from __future__ import annotations

import shutil
from secrets import token_urlsafe

from harness_worker.adapters.embedded.ports import free_port
from harness_worker.adapters.embedded.valkey import answers, password_setting, server_url
from harness_worker.entrypoints.stack.child import Child
from harness_worker.entrypoints.stack.failures import StartFailed
from harness_worker.entrypoints.stack.home import Home
from harness_worker.entrypoints.stack.logs import LogWriter
from harness_worker.entrypoints.stack.plan import StackPlan, redis_spec
from harness_worker.entrypoints.stack.probes import check_redis
from harness_worker.entrypoints.stack.supervisor import Supervisor


def ensure_redis(plan: StackPlan, supervisor: Supervisor, log: LogWriter) -> str:
    """The URL of a Redis that answers; starts one unless one is given.

    Raises:
        ConfigError: The given URL is wrong, or no server program was found.
        TransientError: The given Redis does not answer.
        StartFailed: The embedded one does not start, even with an empty directory.
    """
    given = plan.settings.redis_url
    if given is not None:
        check_redis(given)
        return given
    try:
        return _start(plan, supervisor, log)
    except StartFailed as failed:
        # Data that this server cannot read (of another version, or damaged) must not block the start: everything in
        # Redis may be lost, because SQL is the truth.
        aside = _set_aside(plan.home)
        log.line("up", f"redis did not start ({failed}); once more with an empty directory, the old one is {aside}")
        return _start(plan, supervisor, log)


def _start(plan: StackPlan, supervisor: Supervisor, log: LogWriter) -> str:
    port = free_port()
    password = token_urlsafe()  # every user of this machine can reach a loopback port
    plan.home.write_private(plan.home.valkey_file, password_setting(password))
    url = server_url(port, password=password)
    child = Child(redis_spec(plan, port), plan.home, log)
    supervisor.start(child)
    try:
        supervisor.await_ready([child], lambda _child: answers(url))
    except StartFailed:
        supervisor.forget(child)
        raise
    return url


def _set_aside(home: Home) -> str:
    aside = home.path / "valkey.unreadable"
    shutil.rmtree(aside, ignore_errors=True)
    home.valkey.rename(aside)
    home.valkey.mkdir(mode=0o700)
    return str(aside)
