"""Checks that the gateway, Redis, the broker and the artifact store answer, and are set up as they should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from harness_worker.adapters.blobs.store import FsspecBlobs
from harness_worker.adapters.celery.broker import reach_broker
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.client.client import GatewayClient, RequestRefused, StackUnreachable
from harness_worker.entrypoints.doctor.finding import Finding, ok, warning, wrong
from harness_worker.errors import TransientError
from harness_worker.threads.timeouts import within
from harness_worker.urls import masked

TIMEOUT_S: Final = 3
GATEWAY_S: Final = 8.0
"""How long to wait for the gateway, in seconds; longer than it checks its own services before it says "not ready"."""
ARTIFACTS_S: Final = 10.0
LEAST_REDIS: Final = 7
_NO_KEY: Final = "harness:doctor"
_PROBE: Final = "doctor/probe"


def check_gateway(url: str, key: str | None) -> Iterator[Finding]:
    """Check that the gateway accepts turns, and the API key, if there is one.

    Raises:
        HarnessError: It does not answer, or is not a gateway.
    """
    with GatewayClient(url, key, patience_s=0, timeout_s=GATEWAY_S) as client:
        if _is_ready(client):
            yield ok("gateway", f"ready at {masked(url)}")
        else:
            yield wrong("gateway", f"{masked(url)} answers, and is not ready", "see the database and the broker below")
        if key is not None:
            yield from _check_key(client)


def _is_ready(client: GatewayClient) -> bool:
    """Whether the gateway accepts turns.

    Raises:
        TransientError: It does not answer. The client's own message would name options that ``doctor`` does not have.
    """
    try:
        return client.ready()
    except StackUnreachable as away:
        raise TransientError(f"nothing answers at {masked(client.base_url)} ({away.reason})") from away


def _check_key(client: GatewayClient) -> Iterator[Finding]:
    try:
        client.agents()
    except RequestRefused as refused:
        if refused.code == "unauthorized":  # other checks report anything else
            mend = "set it to a key that `harness keys create` made for that gateway's database, or unset it"
            yield wrong("gateway", "refuses the key in HARNESS_API_KEY", mend)
    else:
        yield ok("gateway", "takes the key in HARNESS_API_KEY")


def check_redis(client: RedisClient, url: str) -> Iterator[Finding]:
    """Check its version, that it takes writes, its eviction policy and its append-only file.

    Raises:
        HarnessError: It does not answer.
    """
    info: Mapping[str, Any] = client.command("INFO")
    version = str(info.get("redis_version", "0"))
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {version}"
    if int(version.partition(".")[0]) < LEAST_REDIS:
        yield wrong("redis", f"{name} at {masked(url)}", f"use Redis {LEAST_REDIS} or newer, or any Valkey")
    else:
        yield ok("redis", f"{name} at {masked(url)}")
    yield from [*_taking(info)] or _writing(client)
    yield from _keeping(info)


def _taking(info: Mapping[str, Any]) -> Iterator[Finding]:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if info.get("role") == "slave":
        yield wrong("redis", "is a replica, which takes no writes", "name the primary in HARNESS_REDIS_URL")
    if 0 < most < used:
        said = f"is full, and refuses writes: it holds {used} bytes, and may hold {most} (maxmemory)"
        yield wrong("redis", said, "CONFIG SET maxmemory to more, or remove what others keep in it")


def _writing(client: RedisClient) -> Iterator[Finding]:
    """Try a write that changes nothing, to a key that does not exist; Redis refuses it as it would any other."""
    try:
        client.command("SET", _NO_KEY, "", "XX", "PX", 1)
    except TransientError as refused:
        mend = "fix what it names: memory (maxmemory), replicas (min-replicas-to-write), or its disk"
        yield wrong("redis", f"takes no writes: {refused}", mend)


def _keeping(info: Mapping[str, Any]) -> Iterator[Finding]:
    policy = info.get("maxmemory_policy", "unknown")
    if policy == "noeviction":
        yield ok("redis", "evicts nothing (maxmemory-policy noeviction)")
    else:
        yield wrong(
            "redis", f"may drop queued messages (maxmemory-policy {policy})", "CONFIG SET maxmemory-policy noeviction"
        )
    if info.get("aof_enabled"):
        yield ok("redis", "keeps messages over a restart (append-only file)")
    else:
        yield warning(
            "redis",
            "a restart loses queued messages: turns go on from SQL, some seconds later (append-only file off)",
            "CONFIG SET appendonly yes",
        )


def check_broker(url: str) -> Iterator[Finding]:
    """Check that a broker other than Redis answers.

    Raises:
        TransientError: It does not answer.
    """
    reach_broker(url, timeout_s=TIMEOUT_S)
    yield ok("broker", f"answers at {masked(url)}")


def check_artifacts(url: str) -> Iterator[Finding]:
    """Check that the artifact store stores bytes and returns them.

    Raises:
        HarnessError: It does not.
    """
    written = b"written by harness doctor"

    def probed() -> bytes:
        blobs = FsspecBlobs(url)
        return blobs.get(blobs.put(_PROBE, written))

    try:
        read = within(ARTIFACTS_S, probed)
    except TimeoutError as silent:
        raise TransientError(f"the artifact store at {masked(url)} does not answer: {silent}") from silent
    if read != written:
        raise TransientError(f"the artifact store at {masked(url)} gave back something else than it was given")
    yield ok("artifacts", f"written and read at {masked(url)}")
