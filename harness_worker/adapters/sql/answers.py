"""Connections to Postgres that wait for an answer only so long."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

T = TypeVar("T")


class AnsweredConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is lost when an answer does not come in time.

    The server's own limit ends no wait for a server that is not reached, or stands still.
    """

    answer_s: float | None = None
    """The longest that a statement, a pipeline, a commit or a rollback may take, in seconds."""

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """As the driver waits, with a limit.

        Raises:
            OperationalError: No answer came in time, or the connection was lost; either way it is closed.
        """
        try:
            return super().wait(gen, interval, self.answer_s if timeout is None else timeout)
        except psycopg.errors.PipelineAborted:  # one of the driver's own that does not end the connection
            raise
        except psycopg.OperationalError as error:
            if error.sqlstate is None and timeout is None:
                self.pgconn.finish()  # not close(): a connection that is broken is one that was lost
            raise
