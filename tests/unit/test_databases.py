"""URLs of databases, the engines made of them, and how long a client of Postgres waits for an answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.database import create_engine
from harness_worker.adapters.sql.engine import make_engine
from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.databases import longest_answer_s, parse_url, postgres_arguments
from harness_worker.errors import ConfigError


@pytest.mark.parametrize("query", ["?timeout=abc", "?timeout=5", "?mode=ro", "?uri=true&mode=ro", "?x=1&x=2"])
def test_options_of_sqlite_are_refused(query: str) -> None:
    """Some would end in a ValueError, and others do nothing, as ``mode=ro`` does."""
    told = (
        r"^HARNESS_DATABASE_URL=sqlite:///a%3Fb\.db\?.*: SQLite takes no options; write a \? of the file's name as %3F$"
    )
    with pytest.raises(ConfigError, match=told):
        parse_url(f"sqlite:///a%3Fb.db{query}")
    assert parse_url("sqlite:///a%3Fb.db").database == "a?b.db"


@pytest.mark.parametrize("sign", ["/", "?"])
def test_database_of_another_kind_is_refused_without_its_password(sign: str) -> None:
    """Even if it has an unescaped @ and a sign that ends the host."""
    with pytest.raises(ConfigError, match=r"^HARNESS_DATABASE_URL=mysql://.*@h/d: use sqlite:///FILE or") as refused:
        parse_url(f"mysql://u:a@cret{sign}b@h/d")
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "limit_s"),
    [
        ("", 11.0),
        ("?options=-c%20statement_timeout%3D2500", 3.5),
        ("?options=-cstatement_timeout%3D2min", 121.0),
        ("?options=--statement_timeout%3D9s%20-c%20idle_in_transaction_session_timeout%3D1ms", 10.0),
        ("?options=-c%20statement_timeout%3D0", None),
        ("?options=-c%20statement_timeout%3D1.5min", 91.0),
        ("?options=--statement-timeout%3D60S", 61.0),
        ("?options=-c%20Statement_Timeout%3D2500", 3.5),
    ],
)
def test_client_waits_a_second_longer_than_the_server_lets_a_statement_take(given: str, limit_s: float | None) -> None:
    """Whichever setting the server takes: ours, or what the URL says after it."""
    arguments = postgres_arguments(parse_url(f"postgresql://h/d{given}"), options={"statement_timeout": 10_000})
    assert longest_answer_s(arguments["options"]) == limit_s


def test_client_waits_for_ever_where_no_server_would_end_a_statement() -> None:
    """Nobody said how long one may take."""
    assert longest_answer_s("-c jit=off") is None


@pytest.mark.parametrize(
    ("given_url", "driver"),
    [
        ("sqlite:////tmp/x.db", "sqlite+aiosqlite"),
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql://u:p@h:1/d?sslmode=require", "postgresql+psycopg"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg"),
    ],
)
def test_engine_of_the_gateway_has_the_async_driver(given_url: str, driver: str) -> None:
    """It has that driver whichever spelling the workers' URL has."""
    assert create_engine(given_url).url.drivername == driver
    assert make_engine(given_url).url.drivername == driver.replace("+aiosqlite", "")


@pytest.mark.parametrize("url", ["sqlite:////tmp/h.db", "postgresql://u:p@h/d"])
@pytest.mark.parametrize("engine_of", [create_engine, make_engine])
def test_errors_of_the_database_show_no_values(engine_of: Callable[[str], AsyncEngine | Engine], url: str) -> None:
    """A statement's values are what users wrote."""
    engine = engine_of(url)
    assert (engine.sync_engine if isinstance(engine, AsyncEngine) else engine).hide_parameters


@pytest.mark.parametrize("use", [create_engine, make_engine, upgrade])
def test_url_whose_password_has_an_at_says_how_to_write_it(use: Callable[[str], object]) -> None:
    """What stands behind it would be told as the host that does not answer."""
    with pytest.raises(ConfigError, match=r"HARNESS_DATABASE_URL.*%40") as raised:
        use("postgresql://u:pass@s3cret@127.0.0.1:1/d")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("use", [create_engine, make_engine, upgrade])
@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:s3cret@h/d",
        "nonsense",
        "postgresql://u:s3cret@h:port/d",
        "",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite+pysqlite:////tmp/x.db",
        "postgresql+asyncpg://u@h/d",
    ],
)
def test_url_of_a_database_that_the_workers_cannot_share_is_refused(use: Callable[[str], object], url: str) -> None:
    """By all alike; the message names the variable and what is allowed, without the password."""
    with pytest.raises(ConfigError, match=r"HARNESS_DATABASE_URL.*sqlite:///FILE or postgresql://") as raised:
        use(url)
    assert "s3cret" not in str(raised.value)
