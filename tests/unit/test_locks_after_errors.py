"""An error at any line of what several threads share keeps no other thread waiting."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness_worker.adapters.anthropic.connections import Checkout, Connection
from harness_worker.adapters.mcp.exchanges import Exchange
from harness_worker.adapters.mcp.keeping import KeptConnection, Unreached
from harness_worker.adapters.redis.counters import Tally
from harness_worker.adapters.scripted.client import ScriptedModel
from harness_worker.adapters.vault.directory import DirectoryVault
from harness_worker.core.records import Turn
from harness_worker.lean_redis import LeanPool
from harness_worker.ports import ignore
from harness_worker.threads.timeouts import OverdueCalls
from harness_worker.turn.heartbeat import CallHeartbeat, VisitHeartbeat
from harness_worker.turn.tool_selector import ToolSelector
from tests.stacks import ROOT
from tests.unit.builders import NOW, a_held_turn, a_visit
from tests.unit.memory_store import MemoryTurnStore
from tests.unit.strikes import MOST_LINES, Striker

SOON_S = 20.0


class _Connection:
    """A connection that is always there."""

    is_connected = False

    def nothing(self, *_: object, **__: object) -> None:
        """Do what a connection does."""

    __init__ = connect = disconnect = re_auth = should_reconnect = nothing


def _visits() -> Callable[[], object]:
    store = MemoryTurnStore(lambda: NOW)
    store.turns["turn"] = a_held_turn()
    heartbeat = VisitHeartbeat(store, every_s=1.0, ttl_s=6.0)

    def hold() -> None:
        with heartbeat.holding(a_visit(store.turns["turn"])):
            heartbeat.stop_turn("turn")
            heartbeat._round()  # pyright: ignore[reportPrivateUsage]

    return hold


def _calls() -> Callable[[], object]:
    return CallHeartbeat("reads", lambda: None, every_s=1.0)._round  # pyright: ignore[reportPrivateUsage]


def _tally() -> Callable[[], object]:
    tally = Tally(cast("Any", SimpleNamespace(batch=ignore)))

    def count() -> None:
        tally.add("late")
        tally.flush()

    return count


def _pool() -> Callable[[], object]:
    pool: Any = LeanPool(connection_class=cast("Any", _Connection))
    return lambda: pool.release(pool.get_connection())


def _overdue() -> Callable[[], object]:
    calls = OverdueCalls()
    return lambda: calls.within(SOON_S, lambda: None, name="judge")


def _script() -> Callable[[], object]:
    model, file = ScriptedModel(), str(ROOT / "tests/apps/w1_script.jsonl")
    return lambda: model._script(file)  # pyright: ignore[reportPrivateUsage]


def _index() -> Callable[[], object]:
    selector = ToolSelector(lambda: cast("Any", SimpleNamespace(index=ignore)))
    agent: Any = SimpleNamespace(name="agent", tools=())
    return lambda: selector._index(agent)  # pyright: ignore[reportPrivateUsage]


def _vault() -> Callable[[], object]:
    vault = DirectoryVault(str(ROOT / "docs/explanation"), cast("Any", SimpleNamespace(index=ignore)))
    return vault._current  # pyright: ignore[reportPrivateUsage]


def _connection() -> Callable[[], object]:
    connection = Connection("key", None, ssl.create_default_context())
    stream: Any = SimpleNamespace(get_extra_info=ignore)

    def use() -> None:
        connection._trace("connection.connect_tcp.complete", {"return_value": stream})  # pyright: ignore[reportPrivateUsage]
        connection.cut()

    return use


def _checkout() -> Callable[[], object]:
    connection: Any = SimpleNamespace(cut=ignore, close=ignore)
    checkout = Checkout(cast("Any", SimpleNamespace(put=ignore)), connection)

    def use() -> None:
        checkout.cut()
        checkout.end(whole=True)

    return use


SHARED = {
    "adapters/anthropic/connections.py": [_connection, _checkout],
    "adapters/vault/directory.py": [_vault],
    "turn/tool_selector.py": [_index],
    "adapters/scripted/client.py": [_script],
    "turn/heartbeat.py": [_visits, _calls],
    "adapters/redis/counters.py": [_tally],
    "lean_redis.py": [_pool],
    "threads/timeouts.py": [_overdue],
}


@pytest.mark.parametrize(("file", "make"), [(file, make) for file, makes in SHARED.items() for make in makes])
def test_error_at_any_line_keeps_no_other_thread_waiting(file: str, make: Callable[[], Callable[[], object]]) -> None:
    """Another thread does the same work afterwards."""
    for at in range(MOST_LINES):
        work, striker = make(), Striker(file, at)
        for target in (partial(striker.run, work), work):
            thread = threading.Thread(target=target, daemon=True)
            thread.start()
            thread.join(SOON_S)
            assert not thread.is_alive(), f"after an error before line {at}"
        if not striker.has_struck:
            assert at > 1
            return
    raise AssertionError(f"there are more than {MOST_LINES} lines")


def test_error_at_any_line_before_a_visit_begins_leaves_no_heartbeats_of_it() -> None:
    """Else its turn would be held as long as the process lives, and nobody would drive it."""
    for at in range(MOST_LINES):
        store = MemoryTurnStore(lambda: NOW)
        store.turns["turn"] = turn = a_held_turn()
        heartbeat = VisitHeartbeat(store, every_s=1.0, ttl_s=600.0)
        begun: list[object] = []

        def hold(heartbeat: VisitHeartbeat = heartbeat, turn: Turn = turn, begun: list[object] = begun) -> None:
            with heartbeat.holding(a_visit(turn)) as stop:
                begun.append(stop)

        Striker("turn/heartbeat.py", at).run(hold)
        if begun:
            assert at > 1
            return
        heartbeat._round()  # pyright: ignore[reportPrivateUsage]
        assert store.turns["turn"] == turn, f"after an error before line {at}"
    raise AssertionError(f"there are more than {MOST_LINES} lines")


class _Endpoint:
    """A server that is always there."""

    name = "server"

    @asynccontextmanager
    async def opened(self, **_: object) -> AsyncGenerator[None]:
        """See ``Endpoint.opened``."""
        yield


async def _request(_: object) -> None:
    """Ask nothing."""


def _stop_unless_leaving(home: Any) -> None:  # noqa: ANN401 - private to its module
    """Stop the loop, unless the error came after it was asked to end: that stops it, too, and may have yet to begin."""
    if not any("_Home.leave" in repr(task) for task in asyncio.all_tasks(home.loop)):
        home.loop.stop()


def _kept() -> KeptConnection:
    return KeptConnection(cast("Any", _Endpoint()), mode="auto", connect_timeout_s=SOON_S)


@pytest.mark.parametrize("closes", [False, True])
def test_error_at_any_line_of_a_call_keeps_no_other_call_of_the_server_waiting(*, closes: bool) -> None:
    """Nor does one at any line of closing the server's connection."""
    for at in range(MOST_LINES):
        kept, striker = _kept(), Striker("adapters/mcp/keeping.py", at)
        ask = partial(kept.ask, _request, Exchange(), within_s=SOON_S)
        ask()
        home: Any = kept._home  # pyright: ignore[reportPrivateUsage]
        striker.run(kept.close if closes else ask)
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(SOON_S)
        assert not thread.is_alive(), f"after an error before line {at}"
        kept.close()
        with suppress(RuntimeError):  # it is closed
            home.loop.call_soon_threadsafe(_stop_unless_leaving, home)
        home.thread.join()
        if not striker.has_struck:
            assert at > 1
            return
    raise AssertionError(f"there are more than {MOST_LINES} lines")


async def _leave_after_a_call(home: Any) -> None:  # noqa: ANN401 - private to its module
    asyncio.get_running_loop().set_exception_handler(ignore)  # a task that was struck is nobody's to wait for
    with suppress(MemoryError, Unreached):
        await home._ask(_request, Exchange(), SOON_S)
    await asyncio.wait_for(home.leave(), SOON_S)


def test_error_at_any_line_of_a_call_lets_its_connection_close() -> None:
    """Else whoever closes the server's connection would wait in vain, and its loop would turn for ever."""
    for at in range(MOST_LINES):
        home, striker = _kept()._make_home(), Striker("adapters/mcp/keeping.py", at)  # pyright: ignore[reportPrivateUsage]
        striker.run(partial(asyncio.run, _leave_after_a_call(home)))
        home.loop.close()
        if not striker.has_struck:
            assert at > 1
            return
    raise AssertionError(f"there are more than {MOST_LINES} lines")


def test_pool_is_closed_while_others_use_it() -> None:
    """No lock keeps them out: a connection may be lent at any moment of that."""
    pool: Any = LeanPool(connection_class=cast("Any", _Connection))
    lent = [pool.get_connection() for _ in range(2)]
    closed: list[object] = []

    def close_while_another_is_lent(connection: object) -> None:
        closed.append(connection)
        pool.get_connection()

    for each in lent:
        each.disconnect = partial(close_while_another_is_lent, each)
    pool.release(lent[0])
    pool.disconnect()
    assert sorted(map(id, closed)) == sorted(map(id, lent))
