"""What may be asked about usage, and how it is drawn."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

from api_gateway.problems import Problem
from api_gateway.usage.requests import UsageQuery
from harness_worker.client.client import GatewayClient
from harness_worker.entrypoints.cli.usage import moment_of, refused_by_option
from harness_worker.entrypoints.view.usage_table import usage_table
from harness_worker.errors import ConfigError

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
DAY_S = 86_400.0


def asked(**query: str) -> UsageQuery:
    """A query as the gateway reads it."""
    return UsageQuery.model_validate(query)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01",
        "2026-01-01T00:00:00Z",
        "2026-01-01t00:00z",
        "2026-01-01 00:00:00Z",
        "2026-01-01T01:30:00+01:30",
        "2026-01-01T01:30:00 01:30",
        "2025-12-31T23:00:00.000-01:00",
    ],
)
def test_time_may_be_written_as_rfc_3339_has_it(text: str) -> None:
    """With any zone; a plus that a URL made a space is one; a day is its beginning in UTC."""
    assert asked(**{"from": text}).begin == NEW_YEAR


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "1767225600", "2026-02-30", "2026-1-1", "20260101", "2026-W01-1", "٢٠٢٦-01-01"),
        *("2026-01-01T00:00:00", "2026-01-01T25:00Z", "2026-01-01T00:00:00+99:00", "2026-01-01Z"),
    ],
)
def test_what_is_no_time_is_told(text: str) -> None:
    """Also times that have no zone."""
    with pytest.raises(ValidationError, match="give a time with its zone, such as"):
        asked(to=text)


@pytest.mark.parametrize("text", ["1969-12-31", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_time_that_no_turn_can_have_is_told(text: str) -> None:
    """It is well written, which a message about its form would deny."""
    with pytest.raises(ValidationError, match="lies before 1970 or too far ahead"):
        asked(to=text)


@pytest.mark.parametrize("by", ["", "tool", "tenant", "Agent", "metadata.", "metadata", "metadata.\0", "agent\0"])
def test_groups_are_those_there_are(by: str) -> None:
    """Columns of turns that nobody named are none."""
    with pytest.raises(ValidationError, match=r"give agent, day, model, session, status or metadata\.KEY"):
        asked(by=by)


@pytest.mark.parametrize(
    ("query", "span"),
    [
        ({}, (NEW_YEAR - 30 * DAY_S, NEW_YEAR)),
        ({"to": "2025-12-31"}, (NEW_YEAR - 31 * DAY_S, NEW_YEAR - DAY_S)),
        ({"from": "2025-12-31"}, (NEW_YEAR - DAY_S, NEW_YEAR)),
        ({"to": "1970-01-02"}, (0.0, DAY_S)),
        ({"from": "2025-12-31", "to": "2026-12-31"}, (NEW_YEAR - DAY_S, NEW_YEAR + 364 * DAY_S)),
    ],
)
def test_time_that_is_not_told_is_the_last_thirty_days(query: dict[str, str], span: tuple[float, float]) -> None:
    """Before the end that is told, or before now."""
    assert asked(**query).span(NEW_YEAR) == span


@pytest.mark.parametrize(
    ("query", "words"),
    [({"from": "2024-12-30"}, "more than 366 days"), ({"from": "2026-01-02"}, "lies in the future")],
)
def test_time_that_is_too_long_or_not_yet_is_told(query: dict[str, str], words: str) -> None:
    """The error names the parameter."""
    with pytest.raises(Problem, match=words) as refused:
        asked(**query).span(NEW_YEAR)
    assert [error.loc for error in refused.value.errors] == [["query", "from"]]


def test_time_that_ends_before_it_begins_is_told() -> None:
    """A time of no length is refused too."""
    with pytest.raises(ValidationError, match="must be before"):
        asked(**{"from": "2026-01-01", "to": "2026-01-01"})


def test_age_is_a_time() -> None:
    """What begins like a date goes to the gateway as it is."""
    assert moment_of("--since", "36h", NEW_YEAR) == "2025-12-30T12:00:00.000000Z"
    assert moment_of("--since", "2w", NEW_YEAR) == "2025-12-18T00:00:00.000000Z"
    assert moment_of("--since", "2026-02-30", NEW_YEAR) == "2026-02-30"


@pytest.mark.parametrize("text", ["", "7 d", "0d", "7days", "1y", "yesterday"])
def test_what_is_neither_age_nor_time_is_told_both(text: str) -> None:
    """The gateway knows nothing of ages, so its message would not name them."""
    with pytest.raises(ConfigError, match=f"^--until {text}: give 30m, 12h, 7d, 4w, a day"):
        moment_of("--until", text, NEW_YEAR)


def figures(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - any member
    """A group."""
    tokens = {f"{name}_tokens": 10 for name in ("input", "output", "cache_read", "cache_write")}
    return {"turns": 1, "steps": 2, "tool_calls": 3, "dollars": 0.5, **tokens, **more}


@pytest.mark.parametrize(
    ("loc", "msg", "said"),
    [
        (["query", "from"], "lies more than 366 days before `to`", "--since: lies more than 366 days before --until"),
        (["query"], "`from` must be before `to`", "--since must be before --until"),
        (["query", "session_id"], "too long to query.from it", "--session: too long to query.from it"),
        (["query", "metadata.to"], "must be given once", "--metadata to: must be given once"),
        (["query", "to"], "give a time with its zone", "--until: give a time with its zone"),
        (["query", "by"], "give agent or day", "--by: give agent or day"),
    ],
)
def test_refusal_names_the_option_that_was_given(loc: list[str], msg: str, said: str) -> None:
    """A person who typed ``--since`` never wrote the query that the gateway refuses."""
    problem = {"code": "invalid_request", "title": "Invalid", "errors": [{"loc": loc, "msg": msg}]}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(422, json=problem))
    with (
        GatewayClient("http://gateway", patience_s=0, transport=transport) as client,
        pytest.raises(ConfigError) as refused,
        refused_by_option(),
    ):
        client.usage()
    assert str(refused.value) == said


def test_table_fits_its_width_and_ends_with_the_total() -> None:
    """Numbers stand below each other, large ones short; a key is one harmless line, cut where there is no room."""
    keys = ("support", None, "a\x1b[31m\n" + "long " * 20)
    total = figures(turns=1_234, input_tokens=12_345_678, output_tokens=2**40, dollars=1_234.5)
    report = {"by": "agent", "data": [figures(key=key) for key in keys], "total": total}
    head, *rows, last = (line.plain for line in usage_table(report, 80))
    assert head.split() == ["agent", "turns", "steps", "calls", "input", "output", "read", "written", "dollars"]
    assert [row.split()[0] for row in rows] == ["support", "(none)", "a·[31m"]
    assert last.split() == ["total", "1,234", "2", "3", "12.35M", "1.10T", "10", "10", "$1,234.5000"]
    assert {len(line) for line in (head, *rows, last)} == {80}
    assert "…" in rows[2]


def test_sessions_of_one_moment_are_told_apart() -> None:
    """Their ids begin with the time, so a narrow table shows how they end."""
    ids = ["01a21d4a-2de4-71ef-8746-6b407e3dedfb", "01a21d4a-2de4-71ef-9a0b-1c5f8e2d7a90"]
    data = [{"key": each, **figures()} for each in ids]
    _, *rows, _ = usage_table({"by": "session", "data": data, "total": figures()}, 80)
    assert [row.plain.split()[0] for row in rows] == ["01a21d4a-2…07e3dedfb", "01a21d4a-2…f8e2d7a90"]
