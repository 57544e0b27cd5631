"""Stopping what a worker does for a turn: the command that is sent, and the signal that a pool process gets."""

from __future__ import annotations

import subprocess
import sys
from time import monotonic
from typing import Any

import redis

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.dispatcher import CeleryDispatcher
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.bootstrap.engine import timing_of
from harness_worker.config import load_settings
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from tests.integration.test_gateway_cancel import mailbox

CHILD = """
import os, signal, time
from billiard.pool import soft_timeout_sighandler
from harness_worker.adapters.celery.soft_deadline import SignalDeadline, keep_knocks_for_bodies
from harness_worker.ports import DeadlineReached

def knock():
    os.kill(os.getpid(), signal.SIGUSR1)

def run(is_revoked, body):
    try:
        with SignalDeadline()(5.0, lambda: is_revoked):
            body()
    except DeadlineReached:
        return "stopped"
    return "ran"

keep_knocks_for_bodies()
signal.signal(signal.SIGUSR1, soft_timeout_sighandler)  # as billiard does, later than any initializer
knock()
print("of another call, before the body:", run(False, lambda: None))
knock()
print("meant, before the body:", run(True, lambda: None))
print("meant, in the body:", run(True, lambda: (knock(), time.sleep(3))))
print("of another call, in the body:", run(False, knock))
knock()
print("timer left:", signal.getitimer(signal.ITIMER_REAL)[0])
"""


def test_stop_signal_reaches_only_the_body_it_is_meant_for() -> None:
    """A knock outside any body never raises; one that came too early stops its body; another call's is ignored."""
    ran = subprocess.run(
        [sys.executable, "-c", CHILD],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        start_new_session=True,  # stopping a body ends all the rest of its process group
    )
    assert ran.stdout.splitlines() == [
        "of another call, before the body: ran",
        "meant, before the body: stopped",
        "meant, in the body: stopped",
        "of another call, in the body: ran",
        "timer left: 0.0",
    ], ran.stderr


def test_stop_command_gives_up_when_the_broker_is_gone() -> None:
    """A coordinator that tells others to stop does not wait for ever for a broker that it was connected to."""
    port = free_port()
    settings = load_settings()
    app = make_app(settings, redis_url=f"redis://127.0.0.1:{port}/0")
    dispatcher = CeleryDispatcher(app, timing=timing_of(settings))
    with valkey_service(port) as url:
        with mailbox(url, "one") as heard:
            dispatcher.stop("t1")
            wait_until(lambda: heard == ["t1"], "the worker to be told")
        client: Any = redis.Redis(port=port)
        client.shutdown(nosave=True)
        client.close()
        began = monotonic()
        dispatcher.stop("t2")
        assert monotonic() - began < 5.0
    app.close()
