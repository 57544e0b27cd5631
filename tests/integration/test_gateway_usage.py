"""Usage over HTTP: one turn's model calls and tools, and sums over many turns."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc
from typing import Any, Final

import pytest

from api_gateway.database import create_engine
from api_gateway.problems import Problem
from api_gateway.requests.places import scan_places
from api_gateway.requests.queries import TurnsQuery
from api_gateway.turns.store import Turns
from api_gateway.usage.answers import TurnUsage
from api_gateway.usage.reader import UsageReader
from api_gateway.usage.requests import UsageQuery
from harness_worker.wire import DEFAULT_TENANT, rfc3339
from tests.integration.gateway_kit import Gateway, problem_of
from tests.stacks import ROOT

PAGE: Final = (ROOT / "docs" / "reference" / "usage.md").read_text()
OF_A_TURN, OF_MANY = (
    json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)

JANUARY: Final = 1_767_225_600.0
"""2026 began then."""

FIRST_STEP: Final = {"input_tokens": 1000, "output_tokens": 50, "cache_write_tokens": 100, "dollars": 0.01}
SECOND_STEP: Final = {"input_tokens": 200, "output_tokens": 20, "cache_read_tokens": 500, "dollars": 0.002}
REFLECTION: Final = {"input_tokens": 50, "output_tokens": 10, "cache_read_tokens": 400, "dollars": 0.0005}
NOTHING: Final = {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "dollars": 0.0}


def used(times: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any column
    """The columns of a turn with this usage."""
    usage = {
        "input_tokens": 1000 * times,
        "output_tokens": 100 * times,
        "cache_read_tokens": 500 * times,
        "cache_write_tokens": 50 * times,
        "dollars": 0.5 * times,
        "steps": 2 * times,
        "tool_calls": 3 * times,
        "reflections": 0,
    }
    return {"used": {**usage, **more}}


def spent(gateway: Gateway, *, at: float = JANUARY, model: str | None = None, times: int = 1, **body: Any) -> str:  # noqa: ANN401 - any member
    """Add a turn with this time and usage; returns its id."""
    turn_id = gateway.posted(**body)["id"]
    gateway.worker.change(turn_id, created_at=at, **used(times))
    if model is not None:
        gateway.worker.event(turn_id, "model.completed", live=False, step=0, usage={}, model=model)
    return turn_id


def report(gateway: Gateway, **query: str | int) -> dict[str, Any]:
    """The sums of January, unless told otherwise."""
    answer = gateway.http.get("/v1/usage", params={"from": "2026-01-01", "to": "2026-02-01", **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def groups(gateway: Gateway, **query: str | int) -> list[tuple[str | None, int]]:
    """Each group's key and its number of turns."""
    return [(group["key"], group["turns"]) for group in report(gateway, **query)["data"]]


def test_turn_tells_each_model_call_and_each_tool(gateway: Gateway) -> None:
    """The answer is that of the documentation; a reflection for which no model was asked is not listed."""
    turn_id = gateway.posted()["id"]
    total = {name: OF_A_TURN["total"][name] for name in OF_A_TURN["total"]}
    gateway.worker.change(turn_id, used={**total, "reflections": 1})
    model = {"model": "claude-sonnet-5-5"}
    gateway.worker.event(turn_id, "model.completed", live=False, step=0, text="a", usage=FIRST_STEP, **model)
    for tool, is_error, elapsed_ms in (
        ("get_order", False, 10.25),
        ("get_order", True, 20.25),
        ("refund", False, 12.0),
    ):
        told = {"call_id": "0.0", "tool": tool, "outcome": "X", "is_error": is_error, "elapsed_ms": elapsed_ms}
        gateway.worker.event(turn_id, "tool.completed", live=False, **told)
    for is_stub, usage in ((False, REFLECTION), (True, NOTHING)):
        thought = {"step": 1, "text": "b", "is_stub": is_stub, "usage": usage}
        gateway.worker.event(turn_id, "reflection.completed", live=False, **thought, **model)
    gateway.worker.event(turn_id, "model.completed", live=False, step=1, text="c", usage=SECOND_STEP, **model)
    assert gateway.http.get(f"/v1/turns/{turn_id}/usage").json() == {**OF_A_TURN, "turn_id": turn_id}
    gateway.worker.change(turn_id, delegated={"dollars": 0.5, "input_tokens": 7})
    asked = gateway.http.get(f"/v1/turns/{turn_id}/usage").json()
    assert asked == {**OF_A_TURN, "turn_id": turn_id, "total": gateway.turn(turn_id)["usage"]}
    assert (asked["total"]["dollars"], asked["total"]["steps"]) == (0.5125, total["steps"])


def test_texts_of_a_turn_are_not_read_for_its_usage(gateway: Gateway) -> None:
    """However long the model's texts are, neither the answer nor the memory it takes grows with them."""
    turn_id, long = gateway.posted()["id"], "x" * 5_000_000
    for step in range(4):
        gateway.worker.event(turn_id, "model.completed", live=False, step=step, text=long, usage=FIRST_STEP)

    async def read() -> TurnUsage | None:
        engine = create_engine(gateway.settings.database_url)
        found = await UsageReader(engine, DEFAULT_TENANT, scan_places()).turn(turn_id)
        await engine.dispose()
        return found

    tracemalloc.start()
    found = asyncio.run(read())
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None
    assert len(found.model_calls) == 4
    assert peak_bytes < len(long)


def test_queries_that_read_all_turns_wait_for_each_other_and_then_give_up(gateway: Gateway) -> None:
    """Lists and reports of a tenant take one connection together, and none of them waits for ever behind the others."""

    async def ask() -> list[str]:
        engine = create_engine(gateway.settings.database_url)
        scans = scan_places(patience_s=0.01)
        query, usage = TurnsQuery(agent="a"), UsageQuery()
        refused: list[str] = []
        async with scans.held(DEFAULT_TENANT):
            for work in (
                Turns(engine, DEFAULT_TENANT, scans).page(query),
                Turns(engine, DEFAULT_TENANT, scans).page(TurnsQuery(agent="")),
                UsageReader(engine, DEFAULT_TENANT, scans).report(usage),
            ):
                with pytest.raises(Problem) as refusal:
                    await work
                refused.append(refusal.value.code)
            await Turns(engine, DEFAULT_TENANT, scans).page(TurnsQuery(session_id="s", agent="a"))
            await UsageReader(engine, "another", scans).report(usage)
        await Turns(engine, DEFAULT_TENANT, scans).page(query)
        await engine.dispose()
        return refused

    assert asyncio.run(ask()) == ["not_ready", "not_ready", "not_ready"]


def test_turn_of_an_older_version_is_told_without_its_model(gateway: Gateway) -> None:
    """Older events name no model; a turn that has not started has used nothing."""
    turn_id = gateway.posted()["id"]
    found = gateway.http.get(f"/v1/turns/{turn_id}/usage").json()
    assert (found["model_calls"], found["tools"], found["total"]["dollars"]) == ([], [], 0.0)
    gateway.worker.event(turn_id, "model.completed", live=False, step=0, text="a", usage=FIRST_STEP)
    (call,) = gateway.http.get(f"/v1/turns/{turn_id}/usage").json()["model_calls"]
    assert (call["model"], call["dollars"]) == (None, 0.01)


def test_turns_of_a_time_are_added_up(gateway: Gateway) -> None:
    """Turns count from ``from`` up to, but without, ``to``, and only those of the default tenant."""
    for at in (JANUARY - 0.001, JANUARY + 31 * 86_400):
        spent(gateway, at=at)
    for at in (JANUARY, JANUARY + 31 * 86_400 - 0.001):
        spent(gateway, at=at, metadata={"customer": "1042"})
    spent(gateway, at=JANUARY + 5)
    gateway.worker.change(spent(gateway), tenant="another")
    expected = {**OF_MANY, "data": [{**OF_MANY["data"][0], "dollars": 1.0}, OF_MANY["data"][1]]}
    expected["total"] = {**OF_MANY["total"], "dollars": 1.5}
    assert report(gateway, by="metadata.customer") == expected


def test_turns_are_grouped_by_what_is_asked_for(gateway: Gateway) -> None:
    """The costliest group comes first, or the newest day; a turn's model is the one that answered last."""
    gateway.worker.publish_agent("other")
    spent(gateway, session_id="s", times=3)
    dear = spent(gateway, agent="other", at=JANUARY + 86_399.9996, model="m1", metadata={"a.b'": "x"}, times=10)
    gateway.worker.event(dear, "model.completed", live=False, step=1, usage={}, model="m2")
    gateway.worker.event(dear, "step.completed", live=False, step=1)
    gateway.worker.change(
        spent(gateway, session_id="s2", at=JANUARY + 2 * 86_400, model="m1"), status="failed", finished_at=JANUARY
    )
    assert groups(gateway) == [("other", 1), ("support", 2)]
    assert groups(gateway, by="status") == [("queued", 2), ("failed", 1)]
    assert groups(gateway, by="day") == [("2026-01-03", 1), ("2026-01-01", 2)]
    assert groups(gateway, by="model") == [("m2", 1), (None, 1), ("m1", 1)]
    assert [key for key, _ in groups(gateway, by="session")][1:] == ["s", "s2"]
    assert groups(gateway, by="metadata.a.b'") == [("x", 1), (None, 2)]
    assert groups(gateway, agent="support", by="session") == [("s", 1), ("s2", 1)]
    assert groups(gateway, status="failed", by="agent") == [("support", 1)]
    assert groups(gateway, session_id="s", by="agent") == [("support", 1)]
    assert groups(gateway, **{"metadata.a.b'": "x"}, by="agent") == [("other", 1)]
    gateway.worker.change(dear, batch_id="b")
    assert groups(gateway, batch_id="b") == [("other", 1)]


def test_total_is_of_all_groups_shown_or_not(gateway: Gateway) -> None:
    """The limit keeps the costliest groups, or the newest days; the total is of all."""
    for number in range(3):
        spent(gateway, at=JANUARY + number * 86_400, session_id=f"s{number}", times=number + 1)
    for by, key in (("session", "s2"), ("day", "2026-01-03")):
        found = report(gateway, by=by, limit=1)
        assert [group["key"] for group in found["data"]] == [key]
        assert (found["groups"], found["total"]["turns"], found["total"]["dollars"]) == (3, 3, 3.0)


def test_without_turns_and_without_a_time(gateway: Gateway) -> None:
    """There are no groups and only zeros; the default is the last thirty days."""
    found = report(gateway)
    assert (found["data"], found["groups"], set(found["total"].values())) == ([], 0, {0})
    now = gateway.worker.row(gateway.posted()["id"]).created_at
    spent(gateway, at=now - 29.9 * 86_400)
    spent(gateway, at=now - 30.1 * 86_400)
    assert gateway.http.get("/v1/usage").json()["total"]["turns"] == 2
    early = gateway.http.get("/v1/usage", params={"to": rfc3339(now - 30 * 86_400)}).json()
    assert early["total"]["turns"] == 1


def test_sums_hold_more_than_any_machine_word(gateway: Gateway) -> None:
    """Numbers that providers report may be of any size."""
    for _ in range(2):
        gateway.worker.change(spent(gateway), **used(input_tokens=2**62))
    assert report(gateway)["total"]["input_tokens"] == 2**63


@pytest.mark.one_database("sqlite")
def test_what_is_asked_for_wrongly_is_told(gateway: Gateway) -> None:
    """The answer is 422 with the place; a plus sign that a URL turns into a space is accepted."""
    for query, place, words in (
        ("from=yesterday", "from", "give a time with its zone"),
        ("from=2020-01-01", "from", "more than 366 days"),
        ("from=2026-02-01&to=2026-01-01", "query", "must be before"),
        ("by=tool", "by", "give agent, day, model, session, status or metadata.KEY"),
        ("by=day&by=agent", "by", "must be given once"),
        ("limit=1001", "limit", "less than or equal to 1000"),
        ("until=2026-01-01", "until", "unknown query parameter"),
    ):
        problem = problem_of(gateway.http.get(f"/v1/usage?{query}"), 422, "invalid_request")
        (error,) = problem["errors"]
        assert words in error["msg"], problem
        assert error["loc"][-1] == place
    found = gateway.http.get("/v1/usage?from=2026-01-01T01:00:00+01:00&to=2026-02-01")
    assert found.json()["from"] == "2026-01-01T00:00:00.000000Z", found.text
