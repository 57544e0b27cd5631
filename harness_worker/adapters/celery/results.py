"""Celery's Redis backend for an application in which nobody waits for a result: it joins chords, and that is all."""

from __future__ import annotations

from typing import Any

from celery.backends.redis import RedisBackend

from harness_worker.lean_redis import LeanPool, LeanRedis


class ChordResults(RedisBackend):
    """Subscribes to nothing, on lean connections.

    Celery's own subscribes to the result of each task that it sends, and may unsubscribe when the garbage collector
    finds it. The replies are read by nobody: they pile up in the connection until Redis cuts it.
    """

    def on_task_call(self, producer: Any, task_id: str) -> None:  # noqa: ANN401 - Celery's own signature
        """Nobody will wait for its result."""

    def add_pending_result(self, result: Any, *_: object, **__: object) -> Any:  # noqa: ANN401 - Celery's own signature
        """Nobody waits for it."""
        return result

    def remove_pending_result(self, result: Any) -> Any:  # noqa: ANN401 - Celery's own signature
        """Nobody waited for it."""
        return result

    def apply_chord(self, *_: object, **__: object) -> None:
        """Nothing to keep: our headers are tasks, never groups whose results had to be nested again."""

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Note it, or raise at once: the sender then leaves the chord to the reconciler.

        Celery's own tries for twenty seconds. It also deletes first what an earlier run of the chord left; each of ours
        runs once.
        """
        untyped: Any = self
        untyped.client.set(untyped.get_key_for_group(group_id, ".s"), chord_size, ex=untyped.chord_expires)

    def restore_group(self, group_id: str, cache: bool = True) -> None:
        """None was kept."""

    def _get_client(self) -> type[LeanRedis]:
        return LeanRedis

    def _get_pool(self, **params: Any) -> LeanPool:  # noqa: ANN401 - Celery's own signature
        return LeanPool(**params)
