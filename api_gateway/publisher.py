"""Messages to the workers: to look at a turn, or to stop working for it. They may be lost; the row is the truth."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar, cast

from api_gateway.logs import in_a_line
from harness_worker.broadcasts import broadcast_stop
from harness_worker.celery_apps import GivenCelery
from harness_worker.wire import ADVANCE_TASK, BROKER_TRANSPORT_OPTIONS, message_priority, turn_queue

THREADS: Final = 4
AT_ONCE: Final = 50
"""Wake-ups sent by one job of a thread: a post that comes meanwhile waits for that many, not for a whole batch."""

SOCKET_TIMEOUT_S: Final = 1.0
ONE_MORE_TRY: Final = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Publisher:
    """Sends wake-ups through Celery's own client, in threads, so that the event loop never waits for the broker.

    Args:
        broker_url: The Celery broker.
        timeout_s: How long a request may wait for the broker.
    """

    def __init__(self, broker_url: str, timeout_s: float) -> None:
        self._celery: Any = _client(broker_url)
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="publish")

    async def advance(self, turn_id: str, priority: str, tenant: str, *, begins: bool = False) -> None:
        """Ask for a coordinator to look at a tenant's turn; if the broker does not answer, that is only logged.

        ``begins``: whether the turn has yet to begin, so that it may wait for those that have begun.
        """
        try:
            await self._in_thread(partial(self._send, turn_id, priority, tenant, begins=begins))
        except Exception as error:  # noqa: BLE001 - never raises: the turn is stored, and the reconciler finds it
            _log.warning("turn %s is stored, but its wake-up was not sent: %s", turn_id, in_a_line(error))

    async def advance_all(self, turns: Sequence[tuple[str, str]], tenant: str, *, begins: bool) -> None:
        """Ask for a look at each of a tenant's turns, given as (id, priority): some at a time, so that others get in.

        If the broker does not answer, that is only logged, once: the reconciler finds the rest. ``begins`` is as for
        :meth:`advance`.
        """
        for first in range(0, len(turns), AT_ONCE):
            try:
                await self._in_thread(partial(self._send_all, turns[first : first + AT_ONCE], tenant, begins=begins))
            except Exception as error:  # noqa: BLE001 - never raises: the turns are stored
                told = "%d turns are stored, but their wake-ups were not sent: %s; the first is %s"
                _log.warning(told, len(turns) - first, in_a_line(error), turns[first][0])
                return

    async def interrupt(self, turns: Sequence[tuple[str, str]], tenant: str) -> None:
        """Act on stored cancels of a tenant's turns, given as (id, priority): ask for looks, and tell workers to stop.

        If the broker does not answer, that is only logged, once for each of the two.
        """
        turn_ids = [turn_id for turn_id, _ in turns]
        await asyncio.gather(self.advance_all(turns, tenant, begins=False), self._stop_all(turn_ids))

    async def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """How many messages wait in each queue; raises if the broker does not answer."""
        return await self._in_thread(partial(self._depths, queues))

    async def check(self) -> None:
        """Raise if the broker does not answer."""
        await self._in_thread(self._connect)

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._celery.close()

    async def _stop_all(self, turn_ids: Sequence[str]) -> None:
        """Tell every worker to stop working for these turns."""
        for number, turn_id in enumerate(turn_ids):
            try:
                await self._in_thread(partial(broadcast_stop, self._celery, turn_id, timeout_s=self._timeout_s))
            except Exception as error:  # noqa: BLE001 - never raises: the next look at the turn tells the workers too
                told = "%d turns are cancelled, but workers have not been told yet: %s; the first is %s"
                _log.warning(told, len(turn_ids) - number, in_a_line(error), turn_id)
                return

    async def _in_thread(self, work: Callable[[], T]) -> T:
        async with asyncio.timeout(self._timeout_s):
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _send_all(self, turns: Sequence[tuple[str, str]], tenant: str, *, begins: bool) -> None:
        with self._celery.producer_pool.acquire(block=True, timeout=self._timeout_s) as producer:
            for turn_id, priority in turns:
                self._send(turn_id, priority, tenant, begins=begins, producer=producer)

    def _send(self, turn_id: str, priority: str, tenant: str, *, begins: bool, producer: Any = None) -> None:  # noqa: ANN401 - kombu's
        self._celery.send_task(
            ADVANCE_TASK,
            args=[turn_id],
            producer=producer,
            queue=turn_queue(priority),
            priority=message_priority(priority, begins=begins, broker_url=self._celery.conf.broker_url),
            ignore_result=True,
            argsrepr=f"(turn={turn_id})",
            kwargsrepr=f"(tenant={tenant})",
        )

    def _depths(self, queues: Sequence[str]) -> dict[str, int]:
        with self._celery.connection_for_write() as connection:
            return {queue: _depth(connection, queue) for queue in queues}

    def _connect(self) -> None:
        with self._celery.connection_for_write() as connection:
            if _is_redis(connection):
                connection.default_channel.client.ping()
            else:
                connection.ensure_connection(**ONE_MORE_TRY)  # by default it retries for ever, and keeps the thread


def _client(broker_url: str) -> Any:  # noqa: ANN401 - Celery has no types
    client = cast("Any", GivenCelery)("api_gateway", broker=broker_url, set_as_current=False)
    client.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        broker_pool_limit=THREADS,
        broker_connection_timeout=SOCKET_TIMEOUT_S,
        task_publish_retry_policy=ONE_MORE_TRY,
        broker_transport_options={**BROKER_TRANSPORT_OPTIONS, **_impatient()},
    )
    return client


def _impatient() -> dict[str, Any]:
    """Transport options for one quick try: by default kombu tries to connect for ever."""
    return {
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": SOCKET_TIMEOUT_S,
        "max_retries": 1,
        "interval_start": 0,
        "interval_step": 0,
        "connect_retries_timeout": SOCKET_TIMEOUT_S,
    }


def _depth(connection: Any, queue: str) -> int:  # noqa: ANN401 - kombu has no types
    """The queue's length, 0 if it does not exist yet; asking a broker for such a queue makes it close the channel."""
    with connection.channel() as channel:
        try:
            return channel.queue_declare(queue=queue, passive=True).message_count
        except connection.channel_errors:
            return 0


def _is_redis(connection: Any) -> bool:  # noqa: ANN401 - kombu has no types
    return connection.transport.driver_type == "redis"
