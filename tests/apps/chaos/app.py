"""Reads, writes that know a repeat by its key, and plain writes; each effect is one POST to a service outside."""

from __future__ import annotations

import http.client
import json
import os
import time
from pathlib import Path
from typing import Final

from harness_worker import Effect, Registry, RunContext

ADDRESS_VARIABLE: Final = "CHAOS_OUTSIDE"
SCRIPT: Final = os.path.relpath(Path(__file__).with_name("script.jsonl"))
"""From the working directory: its name is part of what turns tell, and no path of this machine may be."""

registry = Registry()


@registry.tool(effect=Effect.READ_ONLY, timeout_s=20)
def peek(n: int, s: float = 0.0) -> int:
    """Look, for some seconds."""
    time.sleep(s)
    return n


@registry.tool(effect=Effect.NETWORK, retry_safe=True, timeout_s=20)
def send(n: int, ctx: RunContext, s: float = 0.0) -> int:
    """Have an effect that the service outside knows by its key if it is asked for again."""
    _ask(ctx, is_known_by_key=True)
    time.sleep(s)
    return n


@registry.tool(effect=Effect.LOCAL_WRITE, timeout_s=20)
def put(n: int, ctx: RunContext, s: float = 0.0) -> int:
    """Have an effect each time."""
    _ask(ctx, is_known_by_key=False)
    time.sleep(s)
    return n


def _ask(ctx: RunContext, *, is_known_by_key: bool) -> None:
    effect = {"turn": ctx.turn_id, "call": ctx.call_id, "key": ctx.idempotency_key, "once": is_known_by_key}
    connection = http.client.HTTPConnection(os.environ[ADDRESS_VARIABLE], timeout=10)
    try:
        connection.request("POST", "/", json.dumps(effect))
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise OSError(f"the service outside answered {answer.status}")
    finally:
        connection.close()


registry.agent(
    "stormy",
    model=f"scripted:{SCRIPT}",
    system="Do all of it.",
    tools=[peek, send, put],
    budget={"timeout_s": 600, "max_tool_calls": 20},
)
