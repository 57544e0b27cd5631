"""Sessions over HTTP: the order of their turns, ``multitask``, and lists."""

# ruff: noqa: ANN401 - columns and answers are any JSON
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from sqlalchemy import false, insert, literal_column, select, text, update

from harness_worker.schema import sessions, turns
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import rfc3339
from tests.integration.gateway_kit import NOWHERE, Gateway, gateway_on, problem_of


def places(gateway: Gateway, session_id: str = "s") -> list[tuple[str, bool, bool]]:
    """The session's turns in order: (id, waits, followed)."""
    wanted = select(turns.c.id, turns.c.waits, turns.c.followed).where(turns.c.session_id == session_id)
    with gateway.worker.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(wanted.order_by(turns.c.number))]


def at_once(gateway: Gateway, times: int, **body: Any) -> list[httpx2.Response]:
    """Post the same turn several times at the same moment."""
    with ThreadPoolExecutor(times) as threads:
        return [pending.result() for pending in [threads.submit(gateway.post, **body) for _ in range(times)]]


def test_post_waits_its_turn(gateway: Gateway) -> None:
    """A session's second turn is accepted without a wake-up, and the first is marked as followed."""
    first, second = (gateway.posted(session_id="s")["id"] for _ in range(2))
    assert places(gateway) == [(first, False, True), (second, True, False)]
    assert gateway.worker.wake_ups(first)
    assert gateway.worker.wake_ups(second) == []
    assert gateway.worker.row(second).wake_at > gateway.worker.row(second).created_at


def test_post_after_the_end_of_the_turn_before_does_not_wait(gateway: Gateway) -> None:
    """In a session without unfinished turns, a turn is woken at once."""
    first = gateway.posted(session_id="s")["id"]
    gateway.worker.finish(first)
    second = gateway.posted(session_id="s")["id"]
    assert places(gateway) == [(first, False, False), (second, False, False)]
    assert gateway.worker.wake_ups(second)


def test_posts_to_one_session_at_once_have_an_order(gateway: Gateway) -> None:
    """Simultaneous posts get different places, each waits for those before it, and times of creation rise."""
    answers = at_once(gateway, 8, session_id="s")
    assert {answer.status_code for answer in answers} == {202}
    found = places(gateway)
    assert {answer.json()["id"] for answer in answers} == {turn_id for turn_id, _, _ in found}
    assert [(waits, followed) for _, waits, followed in found] == [(False, True), *[(True, True)] * 6, (True, False)]
    made = [gateway.worker.row(turn_id).created_at for turn_id, _, _ in found]
    assert made == sorted(made)


def test_multitask_reject_of_a_busy_session_is_409(gateway: Gateway) -> None:
    """While a turn is unfinished, another is refused, changes nothing, and does not use its key up."""
    first = gateway.posted(session_id="s", multitask="reject")["id"]
    problem = problem_of(gateway.post(session_id="s", multitask="reject", key="k"), 409, "session_busy")
    assert problem["turns"] == [first]
    assert places(gateway) == [(first, False, False)]
    gateway.worker.finish(first)
    assert gateway.post(session_id="s", multitask="reject", key="k").status_code == 202


def test_multitask_reject_lets_one_of_many_in(gateway: Gateway) -> None:
    """Of posts at the same moment exactly one is accepted."""
    answers = at_once(gateway, 6, session_id="s", multitask="reject")
    refused = [answer for answer in answers if answer.status_code != 202]
    assert len(refused) == 5
    for answer in refused:
        problem_of(answer, 409, "session_busy")


def test_multitask_interrupt_cancels_those_before_it(gateway: Gateway) -> None:
    """Every unfinished turn of the session is told to stop and becomes due; the new one waits for that."""
    done = gateway.posted(session_id="s")["id"]
    gateway.worker.finish(done)
    running, queued, other = (gateway.posted(session_id=name)["id"] for name in ("s", "s", "t"))
    gateway.worker.redis.delete("turns.interactive")
    last = gateway.posted(session_id="s", multitask="interrupt")["id"]
    asked = {turn_id: gateway.worker.row(turn_id).cancel_requested for turn_id in (done, running, queued, other, last)}
    assert asked == {done: False, running: True, queued: True, other: False, last: False}
    for turn_id in (running, queued):
        wait_until(lambda: len(gateway.worker.wake_ups(turn_id)) == 1, "its wake-up")  # noqa: B023 - called at once
    assert [gateway.worker.wake_ups(turn_id) for turn_id in (other, last)] == [[], []]
    assert gateway.worker.row(running).wakes == 1


@pytest.mark.one_database("sqlite")
def test_multitask_interrupt_asks_a_broker_that_is_away_but_once(
    database_url: str, gateway_redis: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A session may have thousands of turns: a message of its own for each would hold up every other request."""
    with gateway_on(database_url, gateway_redis, redis_url=NOWHERE) as gateway:
        for _ in range(3):
            gateway.posted(session_id="s")
        caplog.clear()
        gateway.posted(session_id="s", multitask="interrupt")
        wait_until(lambda: len(_of_publisher(caplog)) > 1, "what was not sent")
    assert sorted(_of_publisher(caplog)) == [
        "3 turns are cancelled, but workers have not been told yet",
        "3 turns are stored, but their wake-ups were not sent",
    ]


def _of_publisher(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [record.getMessage() for record in caplog.records if record.name == "api_gateway.publisher"]
    return [each.partition(":")[0] for each in told]


@pytest.mark.acceptance
def test_multitask_interrupt_cancels_however_many_are_before_it(postgres_url: str, gateway_redis: str) -> None:
    """Their number is not bounded by that of a statement's parameters, which is 65,535."""
    with gateway_on(postgres_url, gateway_redis, redis_url=NOWHERE) as gateway:
        gateway.posted(session_id="s")
        other: dict[str, Any] = {"id": literal_column("'t' || n"), "number": literal_column("n + 1")}
        columns: list[Any] = [other.get(column.name, column) for column in turns.c]
        copies = select(*columns).select_from(turns, text("generate_series(1, 66000) AS n"))
        with gateway.worker.engine.begin() as connection:
            connection.execute(insert(turns).from_select(turns.c.keys(), copies))
            connection.execute(update(sessions).values(turns=66_001))
        last = gateway.posted(session_id="s", multitask="interrupt")["id"]
        goes_on = select(turns.c.id).where(turns.c.cancel_requested == false())
        with gateway.worker.engine.connect() as connection:
            assert connection.execute(goes_on).scalars().all() == [last]


def test_interrupts_at_once_leave_one_to_run(gateway: Gateway) -> None:
    """All but the last of them are told to stop."""
    at_once(gateway, 6, session_id="s", multitask="interrupt")
    asked = [gateway.worker.row(turn_id).cancel_requested for turn_id, _, _ in places(gateway)]
    assert asked == [*[True] * 5, False]


def test_session_tells_its_turns(gateway: Gateway) -> None:
    """It shows how many turns there are, the last one's id and status, and when it began and last changed."""
    first = gateway.posted(session_id="a/b c")
    gateway.worker.finish(first["id"])
    second = gateway.posted(session_id="a/b c")
    session = gateway.http.get("/v1/sessions/a%2Fb%20c").json()
    assert session.pop("created_at") <= first["created_at"]
    assert session == {
        "id": "a/b c",
        "turns": 2,
        "last_turn_id": second["id"],
        "last_status": "queued",
        "updated_at": second["created_at"],
    }
    listed = gateway.http.get("/v1/turns", params={"session_id": "a/b c"}).json()["data"]
    assert [turn["id"] for turn in listed] == [second["id"], first["id"]]
    for column, at in (("started_at", 4e9), ("finished_at", 4.1e9)):
        gateway.worker.change(second["id"], **{column: at})
        assert gateway.http.get("/v1/sessions/a%2Fb%20c").json()["updated_at"] == rfc3339(at)


@pytest.mark.parametrize("session_id", ["two\nlines", "ends\n", "\nbegins", "a/b", "é?#%"])
def test_session_is_found_by_its_whole_name(gateway: Gateway, session_id: str) -> None:
    """Any characters are allowed in a session's id, and a part of it finds nothing."""
    turn = gateway.posted(session_id=session_id)
    assert gateway.http.get(f"/v1/sessions/{quote(session_id, safe='')}").json()["last_turn_id"] == turn["id"]
    problem_of(gateway.http.get(f"/v1/sessions/{quote(session_id + chr(10), safe='')}"), 404, "not_found")


@pytest.mark.parametrize("session_id", ["nope", "%00", "a" * 5_000, "%F0%9F%98%80"])
def test_session_that_does_not_exist_is_404(gateway: Gateway, session_id: str) -> None:
    """This holds for any name."""
    problem_of(gateway.http.get(f"/v1/sessions/{session_id}"), 404, "not_found")


def test_sessions_are_listed_newest_first_in_pages(gateway: Gateway) -> None:
    """Pages have each session once, even while new ones are made."""
    for name in ("a", "b", "c", "d", "e"):
        gateway.posted(session_id=name)
    page = gateway.http.get("/v1/sessions", params={"limit": 2}).json()
    found = [session["id"] for session in page["data"]]
    gateway.posted(session_id="new")
    while page["next"] is not None:
        page = gateway.http.get("/v1/sessions", params={"limit": 2, "after": page["next"]}).json()
        found += [session["id"] for session in page["data"]]
    assert found == ["e", "d", "c", "b", "a"]
    problem_of(gateway.http.get("/v1/sessions?limit=0"), 422, "invalid_request")
    problem_of(gateway.http.get("/v1/sessions?after=x"), 422, "invalid_request")


def test_sessions_in_which_only_agents_speak_are_not_listed(gateway: Gateway) -> None:
    """A child turn's session is listed only once somebody posts a turn to it; it can always be read."""
    turn_id = gateway.posted(session_id="asked-by-an-agent")["id"]
    gateway.worker.change(turn_id, parent_id="another", parent_call_id="0.0")
    gateway.worker.finish(turn_id)

    def listed() -> bool:
        found = gateway.http.get("/v1/sessions", params={"limit": 200}).json()["data"]
        return "asked-by-an-agent" in [session["id"] for session in found]

    assert not listed()
    assert gateway.http.get("/v1/sessions/asked-by-an-agent").json()["turns"] == 1
    gateway.posted(session_id="asked-by-an-agent")
    assert listed()
