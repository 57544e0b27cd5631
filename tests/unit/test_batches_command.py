"""``harness batches``: the file it reads, how it waits, what it says."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from harness_worker.client.client import RequestRefused
from harness_worker.entrypoints.cli.batch_items import items_in, told_by_line, until_ended
from harness_worker.entrypoints.cli.whole_ids import whole_batch_id, whole_id
from harness_worker.entrypoints.view.batch_lines import batch_facts, batch_table
from harness_worker.errors import ConfigError
from tests.unit.client_kit import client_given
from tests.unit.engine_kit import SetClock

NONE = dict.fromkeys(("queued", "running", "requires_action", "completed", "incomplete", "failed", "cancelled"), 0)


def batch(status: str = "in_progress", **counts: int) -> dict[str, Any]:
    """A batch as the gateway gives it."""
    times = {"created_at": "2026-01-01T00:00:00.000000Z", "ended_at": None}
    found = {**NONE, **counts}
    return {"id": "01928c", "status": status, "total": sum(counts.values()), "counts": found, "metadata": {}, **times}


def test_items_are_the_lines_of_a_file() -> None:
    """Whoever names no agent has the one that is given; a line that is empty is none."""
    content = '\ufeff{"custom_id": "a", "params": {"input": "x"}}\n\n{"custom_id": "b", "params": {"agent": "c"}}\r\n'
    found = [
        {"custom_id": "a", "params": {"agent": "support", "input": "x"}},
        {"custom_id": "b", "params": {"agent": "c"}},
    ]
    items = items_in("f", content.encode(), "support")
    assert [item.request for item in items] == found
    assert [item.place for item in items] == ["f:1", "f:3"]
    assert items_in("f", content.encode(), None)[0].request["params"] == {"input": "x"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "f: give at least one turn"),
        (b"\n \n", "f: give at least one turn"),
        (b"\n\xff", "f:2: not UTF-8: byte 1"),
        (b'{"custom_id": "a", "params": {}}\n{', "f:2: not JSON: EOF while parsing an object at column 1"),
        (b'{"custom_id": "a", "params": {"input": NaN}}', "f:1: not JSON: "),
        (b'{"custom_id": "a", "params": {"input": "\\ud800"}}', "f:1: not JSON: "),
        (b"[" * 3_000 + b"]" * 3_000, "f:1: not JSON: "),
        (b'{"custom_id": "a", "params": {"budget": {"max_dollars": 1e999}}}', "f:1: a number is too large"),
        (b"[]", 'f:1: give {"custom_id": "a-name", "params"'),
        (b'{"custom_id": "a"}', "f:1: give "),
        (b'{"custom_id": "a", "params": 1}', "f:1: give "),
        (b'{"custom_id": "a", "params": {}, "more": 1}', "f:1: give "),
    ],
)
def test_a_file_that_holds_no_turns_is_told_by_its_line(content: bytes, said: str) -> None:
    """What is wrong within a turn, the gateway says."""
    with pytest.raises(ConfigError) as refused:
        items_in("f", content, None)
    assert str(refused.value).startswith(said)


def test_line_that_names_no_agent_is_told_of_the_option() -> None:
    """One option is enough for all lines."""
    items = items_in("f", b'{"custom_id": "a", "params": {"input": "x"}}', None)
    error = {"loc": ["body", "requests", 0, "params", "agent"], "msg": "Field required"}
    with pytest.raises(ConfigError) as refused, told_by_line(items):
        raise RequestRefused(422, "invalid_request", "", {"errors": [error]})
    assert str(refused.value) == "f:1: params.agent: Field required, or --agent NAME for all lines that name none"


def test_wait_goes_on_through_a_restart_and_tells_what_changes() -> None:
    """Until the end, however long that takes; what stands as it stood is not told again."""
    stands = [batch(queued=2), batch(queued=2), batch(running=1, completed=1)]
    answers = [httpx2.Response(200, json=each) for each in stands]
    end = httpx2.Response(200, json=batch("ended", completed=2))
    told: list[Any] = []
    client = client_given(*answers, httpx2.ConnectError("away"), end, patience_s=0)
    ended = until_ended(client, SetClock(now_s=0.0), batch(queued=2), math.inf, told.append)
    assert ended == batch("ended", completed=2)
    assert told == [batch(running=1, completed=1)]


def test_wait_for_so_long_gives_the_batch_as_it_is_then() -> None:
    """Somebody who cancels does not wait for ever."""
    client, clock = (
        client_given(httpx2.Response(200, json=batch("canceling", running=1)), patience_s=0),
        SetClock(now_s=0.0),
    )
    assert until_ended(client, clock, batch(running=1), 5.0, print)["status"] == "canceling"
    assert 5 <= clock.monotonic() < 7


def test_results_come_line_by_line_and_refusals_are_told() -> None:
    """Each result is a JSON object on a line of its own."""
    lines: list[Any] = [{"custom_id": "a", "turn": {"id": "1", "input": "ä"}}, {"custom_id": "b", "turn": {"id": "2"}}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    given = httpx2.Response(200, headers={"content-type": "application/x-ndjson"}, text=text)
    assert list(client_given(given, patience_s=0).batch_results("01928c")) == lines
    problem = {"status": 404, "code": "not_found", "detail": "there is no batch 'x'", "title": "Not Found"}
    with pytest.raises(RequestRefused, match=r"there is no batch 'x' \(404 not_found\)"):
        list(client_given(httpx2.Response(404, json=problem), patience_s=0).batch_results("x"))


def test_batch_is_named_by_the_end_of_its_id() -> None:
    """A batch may be named by the last characters of its id, as a turn may."""
    page = {"data": [{"id": "0192-abcd"}, {"id": "0192-abce"}], "next": None}
    client = client_given(httpx2.Response(200, json=page), patience_s=0)
    assert whole_batch_id(client, "abce") == "0192-abce"
    assert whole_batch_id(client, "any name at all") == "any name at all"
    with pytest.raises(ConfigError, match="batch 'e': give at least 4 characters"):
        whole_batch_id(client, "e")
    with pytest.raises(ConfigError, match="none of the newest 1,000 batches has an id that ends in 'ffff'"):
        whole_batch_id(client, "ffff")


@pytest.mark.parametrize("given", ["", "..", "a/b"])
def test_what_is_no_id_is_not_asked_about(given: str) -> None:
    """An unset shell variable, or a path: the gateway would only say that there is nothing at such a URL."""
    client = client_given(patience_s=0)
    with pytest.raises(ConfigError, match="is no id of a batch: `harness batches list` shows them"):
        whole_batch_id(client, given)
    with pytest.raises(ConfigError, match="is no id of a turn: `harness turns list` shows them"):
        whole_id(client, given)


def test_batch_is_found_among_the_newest_though_pages_are_short() -> None:
    """A page of long ones holds few."""
    pages = [{"data": [{"id": f"0192-abc{n}"}], "next": "more" if n < 6 else None} for n in range(7)]
    client = client_given(*(httpx2.Response(200, json=page) for page in pages), patience_s=0)
    assert whole_batch_id(client, "abc6") == "0192-abc6"


def test_batch_in_words() -> None:
    """Under a head, as turns are; only statuses that a turn is in; nobody's metadata moves the cursor."""
    stands = batch(running=1_200, completed=2)
    now = datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert [line.plain for line in batch_table([stands, batch("ended")], now)] == [
        "batch   age  status       turns",
        "01928c  1h   in_progress  1,202 turns: 1,200 running, 2 completed",
        "01928c  1h   ended        0 turns: none is left",
    ]
    ended = {**batch("ended", failed=1), "ended_at": "2026-01-01T00:00:01.000000Z", "metadata": {"a": "\x1b[31m"}}
    lines = list(batch_facts(ended))
    assert lines[:3] == ["batch     01928c", "status    ended", "turns     1 turn: 1 failed"]
    assert lines[4] == "ended     2026-01-01T00:00:01.000000Z"
    assert "\x1b" not in lines[5]
