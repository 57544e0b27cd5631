"""Reading turns, lists and events on both kinds of database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx2
import pytest
from sqlalchemy import delete, event, insert

from api_gateway.database import create_engine
from api_gateway.listing import MOST_BYTES
from api_gateway.requests.places import scan_places
from api_gateway.requests.queries import TurnsQuery
from api_gateway.turns.answers import TurnWithParts
from api_gateway.turns.calls import pending_approvals
from api_gateway.turns.heads import Head, read_heads
from api_gateway.turns.store import Turns
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolExecutionResult, to_record
from harness_worker.schema import messages, scores, turn_events, turns
from harness_worker.wire import MEMORY, child_turn_id
from tests.integration.gateway_kit import AGENT, NOWHERE, Gateway, engines_of, gateway_on, meanwhile, problem_of
from tests.unit.builders import CAPS


def test_turn_shows_its_calls_in_order(gateway: Gateway) -> None:
    """Calls come by step and position, with the outcomes that the model was told.

    Open calls have none, even if their row already holds what they will be told.
    """
    turn_id = gateway.posted()["id"]
    result = ToolExecutionResult(call_id="0.2", tool_name="get_order", output="größe", elapsed_ms=1.0)
    denied = ToolDenied(call_id="0.10", tool_name="x", reason=DenialReason.BUDGET, details="too many")
    gateway.worker.call(turn_id, 1, 0, status="planned", outcome=to_record(denied))
    gateway.worker.call(turn_id, 0, 10, status="ended", outcome=to_record(denied), effect=None)
    times = {"started_at": 1_700_000_000.000001, "finished_at": 1_700_000_000.5, "worker": "host/7"}
    gateway.worker.call(turn_id, 0, 2, status="ended", outcome=to_record(result), attempt=2, **times)
    calls = gateway.turn(turn_id)["calls"]
    assert [call["call_id"] for call in calls] == ["0.2", "0.10", "1.0"]
    assert calls[0] == {
        "call_id": "0.2",
        "tool_use_id": "toolu_2",
        "tool": "get_order",
        "effect": "READ_ONLY",
        "step": 0,
        "wave": 0,
        "position": 2,
        "arguments": {"order_id": "ö1"},
        "outcome": "ToolExecutionResult",
        "content": "größe",
        "is_error": False,
        "attempt": 2,
        "worker": "host/7",
        "child_turn_id": None,
        "started_at": "2023-11-14T22:13:20.000001Z",
        "finished_at": "2023-11-14T22:13:20.500000Z",
    }
    assert (calls[1]["outcome"], calls[1]["content"], calls[1]["is_error"], calls[1]["effect"]) == (
        "ToolDenied",
        "denied: budget: too many",
        True,
        None,
    )
    assert (calls[2]["outcome"], calls[2]["content"], calls[2]["is_error"]) == (None, "", False)


def test_turn_with_messages_has_the_history_in_order(gateway: Gateway) -> None:
    """``include=messages`` adds the stored history; otherwise the field is absent."""
    turn_id = gateway.posted()["id"]
    blocks = [{"type": "text", "text": "Là."}]
    gateway.worker.say(turn_id, "assistant", blocks)
    history = gateway.turn(turn_id, include="messages")["messages"]
    assert history == [{"role": "user", "content": "Where is order ö1?"}, {"role": "assistant", "content": blocks}]
    assert "messages" not in gateway.turn(turn_id)


def test_history_of_a_turn_that_is_removed_meanwhile_is_what_is_left_of_it(postgres_url: str) -> None:
    """A turn may be removed between two statements of a read; that is no error of the gateway."""
    with gateway_on(postgres_url, NOWHERE) as gateway:
        turn_id = gateway.posted()["id"]

        def remove() -> None:
            with gateway.worker.engine.begin() as connection:
                for table in (messages, turn_events):
                    connection.execute(delete(table).where(table.c.turn_id == turn_id))
                connection.execute(delete(turns).where(turns.c.id == turn_id))

        async def read() -> TurnWithParts | None:
            engine = create_engine(postgres_url)
            with meanwhile(engine, "turns.preparation", remove):
                found = await Turns(engine, "default", scan_places()).one_with(turn_id, frozenset({"messages"}))
            await engine.dispose()
            return found

        found = asyncio.run(read())
        assert found is not None
        assert (found.id, found.context) == (turn_id, [])


def test_what_a_turn_was_prepared_with_is_read_only_with_its_history(gateway: Gateway) -> None:
    """It may be megabytes, and turns are read again and again by those who wait for them."""
    turn_id = gateway.posted()["id"]
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    async def use() -> None:
        engine = create_engine(gateway.settings.database_url)
        for each in engines_of(engine):
            event.listen(each, "before_cursor_execute", note)
        found = Turns(engine, "default", scan_places())
        await found.one(turn_id)
        await found.page(TurnsQuery())
        await found.request_cancel(turn_id)
        await engine.dispose()

    asyncio.run(use())
    assert asked
    assert not [statement for statement in asked if "preparation" in statement]


def test_turn_that_ended_shows_how(gateway: Gateway) -> None:
    """Status, reason, error, usage and times are those of the row."""
    turn_id = gateway.posted()["id"]
    used = {"input_tokens": 5, "output_tokens": 2, "cache_read_tokens": 1, "cache_write_tokens": 3}
    used = {**used, "dollars": 0.25, "steps": 2, "tool_calls": 1}
    gateway.worker.change(turn_id, used=used, error={"code": "model_error", "message": "no"}, started_at=1_700_000_000)
    gateway.worker.finish(turn_id, "failed")
    turn = gateway.turn(turn_id)
    assert (turn["status"], turn["stop_reason"], turn["output_text"]) == ("failed", "internal", "done")
    assert turn["error"] == {"code": "model_error", "message": "no"}
    assert turn["usage"] == used
    assert turn["started_at"] == "2023-11-14T22:13:20.000000Z"
    assert turn["finished_at"] == "2023-11-14T22:13:21.500000Z"


def test_list_is_newest_first_and_stable_while_turns_are_added(gateway: Gateway) -> None:
    """While new turns come, pages neither repeat nor miss a turn, even among turns of the same instant."""
    made = [gateway.posted()["id"] for _ in range(5)]
    for turn_id in made[:3]:
        gateway.worker.change(turn_id, created_at=1_700_000_000.1)
    seen: list[str] = []
    query: dict[str, str | int] = {"limit": 2}
    while True:
        page = gateway.http.get("/v1/turns", params=query).json()
        seen += [turn["id"] for turn in page["data"]]
        gateway.posted()
        if page["next"] is None:
            break
        query = {"limit": 2, "after": page["next"]}
    assert seen == made[:2:-1] + sorted(made[:3], reverse=True)


def pages_of(gateway: Gateway, **query: str | int) -> Iterator[httpx2.Response]:
    """All pages of a list."""
    after: dict[str, str] | None = {}
    while after is not None:
        page = gateway.http.get("/v1/turns", params={**query, **after})
        yield page
        after = {"after": page.json()["next"]} if page.json()["next"] else None


@pytest.mark.parametrize("query", [{}, {"session_id": "s"}], ids=["all", "few"])
def test_list_page_of_long_turns_is_short(gateway: Gateway, query: dict[str, str]) -> None:
    """A page has at most ``MOST_BYTES`` of text, or one turn; all turns are on some page."""
    sizes = [3_000_000, 9_500_000, 10, 20, 3_000_000, 4_000_000, 30]
    made = [gateway.posted(input="x" * size, session_id="s")["id"] for size in sizes[:-1]]
    made.append(gateway.posted(input="ö", session_id="s")["id"])
    gateway.worker.change(made[-1], output_text="ö" * 3_000_000)
    pages = list(pages_of(gateway, limit=200, **query))
    listed = [[turn["id"] for turn in page.json()["data"]] for page in pages]
    assert listed == [made[6:], made[2:6][::-1], made[1:2], made[:1]]
    assert all(len(page.content) < MOST_BYTES + 10_000 for page in pages if len(page.json()["data"]) > 1)


def test_list_page_is_cut_by_number_where_turns_are_short(gateway: Gateway) -> None:
    """Short turns fill pages up to the limit asked for."""
    made = [gateway.posted()["id"] for _ in range(5)]
    pages = [[turn["id"] for turn in page.json()["data"]] for page in pages_of(gateway, limit=2)]
    assert pages == [made[:2:-1], made[2:0:-1], made[:1]]


def test_list_holds_no_answers_that_were_given(gateway: Gateway) -> None:
    """Calls with answered questions are not read for a list, because edited arguments may be long."""
    turn_id = gateway.posted()["id"]
    gateway.worker.change(turn_id, status="requires_action")
    given = {"decision": "approve", "arguments": {"text": "x" * 1_000_000}}
    for position, approval in enumerate([{"expires_at": 2e9, **given}, {"expires_at": 2e9}]):
        gateway.worker.call(turn_id, 0, position, approval=approval)
    engine = create_engine(gateway.settings.database_url)

    async def read() -> Sequence[Any]:
        async with engine.connect() as connection:
            found = await pending_approvals(connection, [turn_id])
        await engine.dispose()
        return found[turn_id]

    assert [call.position for call in asyncio.run(read())] == [1]
    (turn,) = gateway.http.get("/v1/turns").json()["data"]
    assert [action["call_id"] for action in turn["required_actions"]] == ["0.1"]


def not_waiting(gateway: Gateway, turn_id: str, arguments: Any) -> None:  # noqa: ANN401 - any JSON
    """Add calls to the turn that wait for nobody: without a question, with an answer, and one that has ended."""
    asked = {"expires_at": 2e9}
    denied = to_record(ToolDenied(call_id="0.3", tool_name="x", reason=DenialReason.APPROVAL, details="no answer"))
    gateway.worker.call(turn_id, 0, 1, arguments=arguments)
    gateway.worker.call(turn_id, 0, 2, arguments=arguments, approval={**asked, "decision": "approve"})
    gateway.worker.call(turn_id, 0, 3, arguments=arguments, approval=asked, outcome=denied, status="ended")


def test_list_page_of_turns_that_ask_much_is_short(gateway: Gateway) -> None:
    """Arguments that wait for an approval count; those of other calls, or of turns that do not wait, do not."""
    made = [gateway.posted()["id"] for _ in range(4)]
    long = {"text": "x" * 5_000_000}
    for turn_id in made:
        gateway.worker.change(turn_id, status="requires_action")
        gateway.worker.call(turn_id, 0, 0, arguments=long, approval={"expires_at": 2e9})
    not_waiting(gateway, made[3], long)
    gateway.worker.change(made[2], status="running")
    pages = [[turn["id"] for turn in page.json()["data"]] for page in pages_of(gateway)]
    assert pages == [[made[3], made[2]], [made[1]], [made[0]]]


def test_list_page_of_turns_below_which_much_is_asked_is_short(gateway: Gateway) -> None:
    """The questions of turns below, which a turn shows, count too; all turns are on some page, each with its own."""
    gateway.worker.publish_agent("child")
    made: list[tuple[str, str]] = []
    for size in (3_500_000, 3_500_000, 8_500_000, 3_500_000, 3_500_000):
        above, below = gateway.posted()["id"], gateway.posted(agent="child")["id"]
        gateway.worker.change(above, status="running", parked_below=[{"turn_id": below, "fence": 1}])
        gateway.worker.change(below, status="requires_action")
        gateway.worker.call(below, 0, 0, arguments={"text": "x" * size}, approval={"expires_at": 2e9})
        made.append((above, below))
    not_waiting(gateway, made[4][1], {"text": "x" * 3_500_000})
    pages = [page.json()["data"] for page in pages_of(gateway, agent=AGENT)]
    shown = [
        [(turn["id"], *(asked["turn_id"] for asked in turn["subagent_actions"])) for turn in page] for page in pages
    ]
    assert shown == [[made[4], made[3]], [made[2]], [made[1], made[0]]]


@pytest.mark.one_database("sqlite")
def test_only_a_question_below_a_turn_itself_counts(gateway: Gateway) -> None:
    """Who waits for a turn is told of no question below another one, nor of one that is not asked yet."""
    asks, waits = (gateway.posted()["id"] for _ in range(2))
    for above, approval in ((asks, {"expires_at": 2e9}), (waits, {"expires_at": None})):
        below = gateway.posted()["id"]
        gateway.worker.call(below, 0, 0, approval=approval)
        gateway.worker.change(above, status="running", parked_below=[{"turn_id": below, "fence": 1}])

    async def read() -> Mapping[str, Head]:
        engine = create_engine(gateway.settings.database_url)
        found = await read_heads(engine, [asks, waits])
        await engine.dispose()
        return found

    found = asyncio.run(read())
    assert {turn_id: head.asks_below for turn_id, head in found.items()} == {asks: True, waits: False}


def test_list_page_that_is_exactly_full_is_the_last(gateway: Gateway) -> None:
    """``next`` is null if nothing follows."""
    for _ in range(2):
        gateway.posted()
    page = gateway.http.get("/v1/turns?limit=2").json()
    assert (len(page["data"]), page["next"]) == (2, None)


def test_list_narrows_by_status_session_and_agent(gateway: Gateway) -> None:
    """A turn must match all filters."""
    gateway.worker.publish_agent("other")
    first = gateway.posted(session_id="s1")["id"]
    second = gateway.posted(session_id="s2")["id"]
    third = gateway.posted(session_id="s2", agent="other")["id"]
    gateway.worker.finish(first)
    assert gateway.ids(status="completed") == [first]
    assert gateway.ids(status="queued") == [third, second]
    assert gateway.ids(session_id="s2", agent=AGENT) == [second]
    assert gateway.ids(session_id="S2") == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a", "1"),
        ("clé", "ü"),
        ('quo"te', "x"),
        ("a.b", "x"),
        ("$", "x"),
        ("sp ace", ""),
        ("", "x"),
        ("a'b", "'"),
        ("\\", "\\"),
    ],
)
def test_list_narrows_by_metadata_as_text(gateway: Gateway, key: str, value: str) -> None:
    """Keys and values are compared literally, as whole texts."""
    wanted = gateway.posted(metadata={key: value, "z": "1"})["id"]
    gateway.posted(metadata={key: value + "!", "other": value})
    gateway.posted()
    assert gateway.ids(**{f"metadata.{key}": value}) == [wanted]
    assert gateway.ids(**{f"metadata.{key}": value, "metadata.z": "1"}) == [wanted]
    assert gateway.ids(**{f"metadata.{key}": value, "metadata.z": "01"}) == []


def test_page_of_long_events_is_short(gateway: Gateway) -> None:
    """A page has at most ``MOST_BYTES`` of data, or one event; ``next`` leads to all of them."""
    turn_id = gateway.posted()["id"]
    for size in (3_000_000, 4_000_000, 9_500_000, 10, 20):
        gateway.worker.event(turn_id, "model.completed", live=False, text="x" * size)
    seqs: list[list[int]] = []
    after: int | None = 0
    while after is not None:
        page = gateway.http.get(f"/v1/turns/{turn_id}/events", params={"limit": 1_000, "after": after}).json()
        seqs.append([event["seq"] for event in page["data"]])
        after = page["next"]
    assert seqs == [[1, 2, 3], [4], [5, 6]]


def test_events_come_in_pages(gateway: Gateway) -> None:
    """``next`` is the last seq given if more exist, else null."""
    turn_id = gateway.posted(session_id="s1")["id"]
    for step in range(3):
        gateway.worker.event(turn_id, "step.started", step=step)
    path = f"/v1/turns/{turn_id}/events"
    page = gateway.http.get(path, params={"limit": 2}).json()
    assert [event["seq"] for event in page["data"]] == [1, 2]
    assert page["next"] == 2
    assert page["data"][0]["data"] == {"agent": AGENT, "session_id": "s1"}
    rest = gateway.http.get(path, params={"after": 2, "limit": 2}).json()
    assert rest["next"] is None
    assert rest["data"][1] == {
        "seq": 4,
        "type": "step.started",
        "turn_id": turn_id,
        "at": "2023-11-14T22:13:20.250000Z",
        "data": {"step": 2},
    }
    assert gateway.http.get(path, params={"after": 4}).json() == {"data": [], "next": None}


def test_cancel_flags_and_wakes_the_turn(gateway: Gateway) -> None:
    """A cancel changes its flag and when to look, sends one wake-up, and changes nothing else."""
    turn_id = gateway.posted(priority="batch")["id"]
    gateway.worker.change(turn_id, wake_at=9e9, fence=3)
    response = gateway.http.post(f"/v1/turns/{turn_id}/cancel")
    row = gateway.worker.row(turn_id)
    assert (response.status_code, response.json()["id"]) == (202, turn_id)
    assert (row.cancel_requested, row.wakes, row.fence, row.status) == (True, 1, 3, "queued")
    assert row.wake_at < 9e9
    assert len(gateway.worker.wake_ups(turn_id, "batch")) == 2


def test_cancel_of_a_finished_turn_changes_nothing(gateway: Gateway) -> None:
    """The answer is 200 with the turn as it ended."""
    turn_id = gateway.posted()["id"]
    gateway.worker.finish(turn_id)
    before = gateway.worker.row(turn_id)
    response = gateway.http.post(f"/v1/turns/{turn_id}/cancel")
    assert (response.status_code, response.json()["status"]) == (200, "completed")
    assert gateway.worker.row(turn_id) == before
    assert len(gateway.worker.wake_ups(turn_id)) == 1


def test_agents_are_listed_by_name(gateway: Gateway) -> None:
    """The list shows agents as workers published them."""
    tool = {"name": "t", "description": "Zählt.", "effect": None, "schema": {"type": "object"}}
    gateway.worker.publish_agent("a", tools=[tool], parallel=False)
    agents = gateway.http.get("/v1/agents").json()["data"]
    assert [agent["name"] for agent in agents] == ["a", AGENT]
    assert agents[0] == {"name": "a", "model": "scripted:x", "tools": [tool], "budget": CAPS, "parallel": False}
    problem_of(gateway.http.get("/v1/agents?x=1"), 422, "invalid_request")


@pytest.mark.parametrize("description", [5, "\ud800"])
def test_agent_that_cannot_be_shown_hides_no_other(gateway: Gateway, description: object) -> None:
    """An agent that an older worker published unchecked may be invalid; it is left out."""
    tool = {"name": "t", "description": description, "effect": None, "schema": {"type": "object"}}
    gateway.worker.publish_agent("a", tools=[tool])
    agents = gateway.http.get("/v1/agents").json()["data"]
    assert [agent["name"] for agent in agents] == [AGENT]


def test_turn_shows_whose_call_it_is_and_calls_show_the_turns_that_they_are(gateway: Gateway) -> None:
    """A turn includes what its children were charged with; a call that was not sent has no turn yet."""
    parent, child = (gateway.posted()["id"] for _ in range(2))
    gateway.worker.change(child, parent_id=parent, parent_call_id="0.0")
    asks: dict[str, Any] = {"delegation": {"agent": "helper", "budget": {}}, "tool": "helper"}
    gateway.worker.call(parent, 0, 0, status="running", deadline_at=1.0, **asks)
    gateway.worker.call(parent, 0, 1, **asks)
    used = {"input_tokens": 3, "dollars": 0.5, "steps": 1}
    gateway.worker.change(parent, used={**used, "tool_calls": 1}, delegated={**used, "steps": 0})
    shown = gateway.turn(parent)
    assert [call["child_turn_id"] for call in shown["calls"]] == [child_turn_id(parent, "0.0"), None]
    assert (shown["usage"]["input_tokens"], shown["usage"]["dollars"], shown["usage"]["steps"]) == (6, 1.0, 1)
    assert (shown["parent"], gateway.turn(child)["parent"]) == (None, {"turn_id": parent, "call_id": "0.0"})


@pytest.mark.one_database("sqlite")
def test_scores_are_the_turns_own(gateway: Gateway) -> None:
    """Neither another turn's score by the same judge is among them, nor the row of what is to be remembered."""
    first, second = (gateway.posted()["id"] for _ in range(2))
    given = ((first, "strict", 0.25), (first, MEMORY, None), (second, "strict", 0.75))
    with gateway.worker.engine.begin() as connection:
        for turn_id, judge, score in given:
            connection.execute(insert(scores).values(turn_id=turn_id, judge=judge, score=score))
    for turn_id, score in ((first, 0.25), (second, 0.75)):
        (shown,) = gateway.http.get(f"/v1/turns/{turn_id}/scores").json()["data"]
        assert (shown["judge"], shown["score"]) == ("strict", score)


def test_turns_are_listed_by_their_parent(gateway: Gateway) -> None:
    """People find there which turns wait for them."""
    parent, child, other = (gateway.posted()["id"] for _ in range(3))
    gateway.worker.change(child, parent_id=parent, parent_call_id="0.0")
    assert gateway.ids(parent_id=parent) == [child]
    assert gateway.ids(parent_id=parent, status="running") == []
    assert {parent, child, other} <= set(gateway.ids(limit=200))
