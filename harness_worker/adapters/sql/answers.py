"""Connections to Postgres that wait only so long for an answer."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

from harness_worker.databases import close_if_lost

T = TypeVar("T")


class AnsweredConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that counts as lost if an answer does not come in time.

    The server's own limit does not help if the server cannot be reached, or hangs.
    """

    answer_s: float | None = None
    """The longest that a statement, a pipeline, a commit or a rollback may take, in seconds."""

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait as the driver does, but with a time limit.

        Raises:
            OperationalError: No answer came in time, or the connection was lost; either way it is closed.
        """
        try:
            return super().wait(gen, interval, self.answer_s if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if timeout is None:
                close_if_lost(self, error)
            raise
