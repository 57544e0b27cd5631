"""Rules of the gateway that are too small for a file each."""

from __future__ import annotations

import asyncio
import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.errors import IdleInTransactionSessionTimeout, InFailedSqlTransaction, InternalError_, TransactionTimeout
from sqlalchemy.exc import InternalError

from api_gateway.logs import AcceptErrors
from api_gateway.problems import MOST_PROBLEMS, no_database
from api_gateway.requests.turns import BudgetRequest
from api_gateway.streams.sse import wants_stream
from api_gateway.turns.new_turns import clamped, unknown_agents
from harness_worker.urls import is_loopback
from tests.unit.builders import CAPS


@pytest.mark.parametrize("ended", [IdleInTransactionSessionTimeout(), TransactionTimeout(), InternalError_()])
def test_transaction_that_postgres_ended_itself_is_no_bug(ended: Exception) -> None:
    """The gateway stood still, the database was slow or had an error of its own: who asks shall try again."""
    assert no_database(InternalError(None, None, ended)).status == 503


def test_statement_that_postgres_refuses_is_a_bug() -> None:
    """A client can do nothing about it."""
    with pytest.raises(InternalError):
        no_database(InternalError(None, None, InFailedSqlTransaction()))


@pytest.mark.parametrize(
    ("accept", "stream"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("text/event-stream, application/json", True),
        ("application/json, text/event-stream", False),
        ("text/event-stream;q=0", False),
        ("text/event-stream; q=0.0", False),
        ("text/event-stream;q=0.5, application/json;q=0.9", False),
        ("application/json;q=0.5, text/event-stream", True),
        ("text/event-stream;q=high", True),
        ("*/*", False),
        ("", False),
        ("text/html", False),
    ],
)
def test_wants_stream_by_accept(accept: str, *, stream: bool) -> None:
    """Only an explicit wish, before JSON, makes a stream."""
    assert wants_stream(accept) is stream


def test_unknown_agents_are_told_with_their_places_as_many_as_are_told() -> None:
    """In the order in which they are asked; a request that has one place alone needs none."""
    missing: dict[str, list[str | int]] = {f"a{n}": ["body", "requests", n, "params", "agent"] for n in range(25)}
    problem = unknown_agents(missing, ["support"])
    assert [error.loc[2] for error in problem.errors] == list(range(MOST_PROBLEMS))
    assert problem.detail.endswith("'a19'; and 5 more are unknown; there are: support")
    alone = unknown_agents({"a": ["body", "agent"]}, [])
    assert (alone.errors, alone.detail) == ((), "there is no agent 'a'; no worker has published any agent yet")


@given(
    st.builds(
        BudgetRequest,
        max_steps=st.none() | st.integers(0, 10**40),
        max_tokens=st.none() | st.integers(0, 10**40),
        max_dollars=st.none() | st.floats(0, 1e300),
    )
)
def test_clamped_never_exceeds_the_cap(wanted: BudgetRequest) -> None:
    """No wish lifts a cap, and a wish below it counts."""
    budget = clamped(CAPS, wanted)
    assert budget.max_steps == (6 if wanted.max_steps is None else min(6, wanted.max_steps))
    assert budget.max_dollars == (1.0 if wanted.max_dollars is None else min(1.0, wanted.max_dollars))
    assert budget.max_tokens == (None if wanted.max_tokens is None else min(2**53, wanted.max_tokens))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *(("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("localhost", True)),
        *(("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("localhost.evil.example", False), ("", False)),
    ],
)
def test_is_loopback(host: str, *, loopback: bool) -> None:
    """Only this machine's own addresses."""
    assert is_loopback(host) is loopback


def test_lack_of_descriptors_is_told_once_and_other_errors_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    """Asyncio tries to accept thousands of times a second, and would tell of each with a traceback."""
    loop, tell = asyncio.new_event_loop(), AcceptErrors()
    lack = OSError(errno.EMFILE, "Too many open files")
    for _ in range(3):
        tell(loop, {"message": "socket.accept() out of system resource", "exception": lack})
    tell(loop, {"message": "Task exception was never retrieved", "exception": OSError("another")})
    loop.close()
    told = [(record.name, record.getMessage()) for record in caplog.records]
    assert told == [
        ("api_gateway.logs", "no more connections are accepted for now: [Errno 24] Too many open files"),
        ("asyncio", "Task exception was never retrieved"),
    ]
