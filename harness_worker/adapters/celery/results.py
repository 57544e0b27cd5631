"""Celery's Redis backend for an application in which nobody waits for results: it only joins chords."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from celery.backends.redis import RedisBackend
from celery.exceptions import BackendError, Reject
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from harness_worker.errors import SYSTEM_ERRORS, TransientError
from harness_worker.lean_redis import LeanPool, LeanRedis

log = logging.getLogger(__name__)

PASSING: Final = (RedisError, OperationalError, BackendError, TransientError, *SYSTEM_ERRORS)
"""What may be raised in or around a task, where its result is stored or its callbacks are sent, and is likely
to pass."""


@contextmanager
def telling_if_possible(task_id: object) -> Generator[None]:
    """A context in which the producer of a message that is dropped is told so; if Redis is away, that is only logged.

    This happens in the worker's main thread, where an error would end the worker. The message, still unanswered, would
    then end the next worker.
    """
    try:
        yield
    except PASSING as error:
        why = f"{type(error).__name__}: {error}"
        log.warning("the producer of task %s is not told that it was dropped: %s", task_id, why)


class ChordResults(RedisBackend):
    """A backend that subscribes to nothing, on lean connections.

    Celery's own subscribes to the result of each task that it sends, and unsubscribes at best when the garbage
    collector finds it. Nobody reads the replies, which pile up in the connection until Redis closes it.
    """

    def on_task_call(self, producer: Any, task_id: str) -> None:  # noqa: ANN401 - Celery's own signature
        """Do nothing: nobody will wait for the result."""

    def add_pending_result(self, result: Any, *_: object, **__: object) -> Any:  # noqa: ANN401 - Celery's own signature
        """Add nothing: nobody waits for the result."""
        return result

    def remove_pending_result(self, result: Any) -> Any:  # noqa: ANN401 - Celery's own signature
        """Remove nothing: nobody waited for the result."""
        return result

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Store the size, or raise at once, so that the sender leaves the chord to the reconciler.

        Celery's own method retries for twenty seconds. It also first deletes what an earlier run of the chord left, but
        each of ours runs only once.
        """
        untyped: Any = self
        untyped.client.set(untyped.get_key_for_group(group_id, ".s"), chord_size, ex=untyped.chord_expires)

    def restore_group(self, group_id: str, cache: bool = True) -> None:
        """Restore nothing, without asking Redis: Celery stores only headers that contain groups, as ours never do.

        The results of a producer's header that contains some are therefore passed on without their nesting.
        """

    def mark_as_failure(
        self,
        task_id: str,
        exc: Exception,
        traceback: str | None = None,
        request: Any = None,  # noqa: ANN401 - Celery's own signature
        store_result: bool = True,
        *more: Any,  # noqa: ANN401 - Celery's own signature
        **options: Any,  # noqa: ANN401 - Celery's own signature
    ) -> None:
        """Store a task's failure for its producer.

        Raises:
            Reject: The task did not fail, but its state could not be stored, or its callbacks could not be sent:
                Celery tells that as a failure, as soon as Redis answers again. The message must come again.
        """
        if store_result and isinstance(exc, PASSING):
            raise Reject(exc, requeue=True)
        super().mark_as_failure(task_id, exc, traceback, request, store_result, *more, **options)

    def mark_as_revoked(self, task_id: str, *more: Any, **options: Any) -> None:  # noqa: ANN401 - Celery's own signature
        """Store for its producer, if possible, that a task was revoked or has expired."""
        with telling_if_possible(task_id):
            super().mark_as_revoked(task_id, *more, **options)

    def _get_client(self) -> type[LeanRedis]:
        return LeanRedis

    def _get_pool(self, **params: Any) -> LeanPool:  # noqa: ANN401 - Celery's own signature
        return LeanPool(**params)
