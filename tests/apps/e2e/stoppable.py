"""Tools that run until somebody stops them or lets them go on, and say when they have left."""

from __future__ import annotations

import subprocess
import time

from harness_worker import Effect, RunContext
from tests.apps.e2e import journal
from tests.apps.e2e.work import registry

LONG_S = journal.LONG_S


@registry.tool(effect=Effect.READ_ONLY, timeout_s=LONG_S, resource_keys=lambda a: [f"hold:{a.who}"])
def hold(who: str, s: float, ctx: RunContext) -> str:
    """Look for some seconds."""
    return _hold(who, s, ctx)


@registry.tool(effect=Effect.LOCAL_WRITE, timeout_s=LONG_S)
def hold_write(who: str, s: float, ctx: RunContext) -> str:
    """Write, and take some seconds for it."""
    return _hold(who, s, ctx)


def _hold(who: str, s: float, ctx: RunContext) -> str:
    try:
        journal.entered(ctx, who=who)  # whoever reads this may stop the body at once
        time.sleep(s)
    finally:
        journal.left(ctx)
    return f"held {who}"


@registry.tool(effect=Effect.READ_ONLY, timeout_s=LONG_S)
def deaf(ctx: RunContext) -> str:
    """Start a process, and listen to nobody."""
    child = subprocess.Popen(["sleep", str(LONG_S)])
    until = time.monotonic() + LONG_S
    has_entered = False
    while time.monotonic() < until:
        try:
            if not has_entered:
                has_entered = True
                journal.entered(ctx, child=child.pid)
            time.sleep(LONG_S)
        except BaseException:  # noqa: BLE001, S112 - that is the fault
            continue
    return "never stopped"


@registry.tool(effect=Effect.READ_ONLY, timeout_s=LONG_S, resource_keys=lambda _: [])
def await_word(word: str, ctx: RunContext) -> str:
    """Look until the test gives the word."""
    journal.entered(ctx)
    journal.await_word(word)
    return "heard"
