"""Tools that do what they should."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from math import isqrt
from typing import Literal

from harness_worker import Effect, Registry, RunContext
from tests.apps.e2e import journal

registry = Registry()


@registry.tool(effect=Effect.READ_ONLY)
def look(n: int, ctx: RunContext, s: float = 0.0) -> dict[str, int]:
    """Look, for some seconds."""
    journal.entered(ctx)
    time.sleep(s)
    return {"n": n}


@registry.tool(effect=Effect.READ_ONLY, timeout_s=40)
def crunch(method: Literal["fork", "spawn", "forkserver"], ctx: RunContext) -> list[int]:
    """Compute in processes of its own."""
    journal.entered(ctx)
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool, ProcessPoolExecutor(1, mp_context=context) as executor:
        return [*pool.map(isqrt, [1, 4]), *executor.map(isqrt, [9])]


@registry.tool(effect=Effect.READ_ONLY)
def speak(word: str, ctx: RunContext) -> str:
    """Print, in each way that a script may."""
    journal.entered(ctx)
    print("said", word)  # noqa: T201 - what it is for
    subprocess.run(["echo", "echoed", word], stdout=sys.stdout, check=True)
    print("complained of", word, file=sys.stderr)  # noqa: T201 - likewise
    sys.stdout.buffer.write(f"written {word}\n".encode())
    return "spoken"


@registry.tool(effect=Effect.READ_ONLY)
def meet(who: str, parties: int, ctx: RunContext) -> str:
    """Wait until that many calls of this step run at the same time."""
    journal.entered(ctx, who=who)
    step = ctx.call_id.partition(".")[0] + "."
    until = time.monotonic() + 8
    while time.monotonic() < until:
        lines = journal.read(journal.directory(), ctx.turn_id)
        if len({line["call"] for line in lines if line["call"].startswith(step)}) >= parties:
            return "met"
        time.sleep(0.01)
    return "alone"


@registry.tool(effect=Effect.READ_ONLY, resource_keys=lambda a: a.keys)
def touch(keys: list[str], ctx: RunContext) -> str:
    """Look at the named resources."""
    journal.entered(ctx)
    return ",".join(keys)


@registry.tool(effect=Effect.READ_ONLY, kind="web")
def find(n: int, ctx: RunContext) -> dict[str, int]:
    """Find on the web."""
    journal.entered(ctx)
    return {"n": n}


@registry.tool(effect=Effect.LOCAL_WRITE)
def put(n: int, ctx: RunContext, s: float = 0.0) -> str:
    """Write, and take some seconds for it."""
    journal.entered(ctx)
    journal.did(ctx, n=n)
    time.sleep(s)
    return f"put {n}"


@registry.tool(effect=Effect.NETWORK, retry_safe=True)
def send(n: int, ctx: RunContext) -> str:
    """Write, and know a repeat by its key."""
    journal.entered(ctx)
    journal.did_once(ctx)
    return f"sent {n}"


@registry.tool
def mystery(n: int, ctx: RunContext) -> str:
    """Do nobody knows what."""
    journal.entered(ctx)
    journal.did(ctx, n=n)
    return f"mystery {n}"


@registry.tool(effect=Effect.READ_ONLY, queue="gpu")
def gpu_look(n: int, ctx: RunContext) -> str:
    """Look, where the graphics cards are."""
    journal.entered(ctx)
    return f"gpu {n}"


@registry.tool(effect=Effect.READ_ONLY)
def context(ctx: RunContext) -> dict[str, object]:
    """Tell what a tool is told."""
    journal.entered(ctx)
    return {
        "turn_id": ctx.turn_id,
        "call_id": ctx.call_id,
        "session_id": ctx.session_id,
        "tenant": ctx.tenant,
        "metadata": dict(ctx.metadata),
        "attempt": ctx.attempt,
        "key": ctx.idempotency_key,
        "remaining_s": ctx.deadline.remaining_s(),
    }


@registry.tool(effect=Effect.READ_ONLY, timeout_s=40)
def linger(ctx: RunContext) -> str:
    """Take for ever at first, no time later."""
    journal.entered(ctx)
    if ctx.attempt == 1:
        time.sleep(39)
    return f"attempt {ctx.attempt}"


@registry.tool(effect=Effect.READ_ONLY, idempotent=True, resource_keys=lambda _: [])
def fetch(n: int, ctx: RunContext) -> dict[str, int]:
    """Look at what stays as it is unless somebody writes."""
    journal.entered(ctx)
    return {"n": n}


@registry.tool(effect=Effect.LOCAL_WRITE, approval="always")
def ask_put(n: int, ctx: RunContext) -> str:
    """Write, if somebody agrees."""
    journal.entered(ctx)
    journal.did(ctx, n=n)
    return f"put {n}"


@registry.tool(effect=Effect.LOCAL_WRITE, approval="always", approval_timeout_s=2)
def ask_soon(n: int, ctx: RunContext) -> str:
    """Write, if somebody agrees at once."""
    journal.entered(ctx)
    journal.did(ctx, n=n)
    return f"put {n}"


@registry.tool(effect=Effect.READ_ONLY, approval=lambda a: a.n > 9)
def ask_look(n: int, ctx: RunContext) -> dict[str, int]:
    """Look at small things; at others only if somebody agrees."""
    journal.entered(ctx)
    return {"n": n}


@registry.tool(effect=Effect.LOCAL_WRITE, idempotent=True)
def save(n: int, ctx: RunContext) -> str:
    """Write what need not be written twice."""
    journal.entered(ctx)
    journal.did(ctx, n=n)
    return f"saved {n}"


@registry.tool(effect=Effect.LOCAL_WRITE, lock="order:{order}", timeout_s=40)
def reserve(order: str, ctx: RunContext, s: float = 0.0) -> str:
    """Work on an order that nobody else works on meanwhile, for some seconds."""
    journal.entered(ctx, fence=ctx.fence)
    time.sleep(s)
    journal.left(ctx)
    return "held"
