"""API keys over HTTP: which requests are accepted, and that tenants see nothing of each other."""

# ruff: noqa: ANN401 - rows and answers are any JSON
from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil
import pytest
from sqlalchemy import insert, select, text, update

from api_gateway.config import Settings
from api_gateway.database import create_engine
from api_gateway.middleware.keys import Keys
from api_gateway.requests.places import scan_places
from api_gateway.requests.queries import EventsQuery
from api_gateway.streams import permission
from api_gateway.turns.store import Turns
from harness_worker.adapters.blobs.store import FsspecBlobs
from harness_worker.adapters.sql.api_keys import SqlApiKeys
from harness_worker.client.client import RequestRefused
from harness_worker.entrypoints.cli.sweep.stack import sweep_settings
from harness_worker.errors import ConfigError
from harness_worker.schema import api_keys, artifacts, db_now, idempotency_keys, scores, turns, webhooks
from harness_worker.wire import artifact_key
from tests.integration.gateway_kit import (
    NOWHERE,
    WITHOUT_TLS,
    Gateway,
    bearer,
    keys_on,
    new_key,
    problem_of,
    serving,
)

UNKNOWN: Final = "hk_" + "x" * 43
SSE: Final = {"Accept": "text/event-stream"}
DATA: Final = "abc" * 100
TAKES_A_BODY: Final = {
    "/v1/turns/{turn_id}/inputs": {"message": "no"},
    "/v1/turns/{turn_id}/fork": {"from_step": 0},
}


@pytest.fixture
def keys(gateway: Gateway) -> Generator[SqlApiKeys]:
    """The keys of the gateway's database."""
    with keys_on(gateway.settings.database_url) as found:
        yield found


def as_tenant(gateway: Gateway, keys: SqlApiKeys, tenant: str) -> httpx2.Client:
    """A client with a key of the tenant; it calls the gateway by a name that is not this machine's."""
    key, _ = new_key(keys, tenant)
    headers = {**bearer(key), "Host": "gateway.example"}
    return httpx2.Client(base_url=gateway.url, headers=headers, timeout=30, verify=WITHOUT_TLS)


# --- who is let in ----------------------------------------------------------------------------------------------------


def test_turn_is_its_keys_tenants(gateway: Gateway, keys: SqlApiKeys) -> None:
    """A turn belongs to the key's tenant, or without a key to the default tenant; its wake-up names the tenant too."""
    with as_tenant(gateway, keys, "Acme Ltd. ☃") as acme:
        theirs = acme.post("/v1/turns", json=gateway.defaults)
    assert theirs.status_code == 202, theirs.text
    ids = {"Acme Ltd. ☃": theirs.json()["id"], "default": gateway.posted()["id"]}
    for tenant, turn_id in ids.items():
        assert gateway.worker.row(turn_id).tenant == tenant
        (message,) = gateway.worker.wake_ups(turn_id)
        assert message["kwargsrepr"] == f"(tenant={tenant})"


def test_key_that_is_not_accepted_is_401_for_whatever_reason(gateway: Gateway, keys: SqlApiKeys) -> None:
    """The answer never says whether the key once existed; OpenAI's routes answer in OpenAI's format."""
    expired, its = new_key(keys, "acme", days=1)
    revoked, other = new_key(keys, "acme")
    assert gateway.http.get("/v1/turns", headers=bearer(expired)).status_code == 200
    keys.revoke(other.id)
    with gateway.worker.engine.begin() as connection:
        connection.execute(update(api_keys).where(api_keys.c.id == its.id).values(expires_at=db_now()))
    for path in ("/v1/turns", "/v1/models", "/v1/nothing", "/v1"):
        refused = [gateway.http.get(path, headers=bearer(key)) for key in (expired, revoked, UNKNOWN, "hk_")]
        assert {each.status_code for each in refused} == {401}
        assert {each.headers["www-authenticate"] for each in refused} == {'Bearer error="invalid_token"'}
        assert len({each.content for each in refused}) == 1
        error = refused[0].json().get("error", refused[0].json())
        assert error["code"] == "unauthorized"
    for key in (expired, revoked):
        assert key not in refused[0].text


def test_revoked_key_is_refused_at_once_by_every_gateway(gateway: Gateway, keys: SqlApiKeys) -> None:
    """No gateway remembers keys; the turns made with it stay, and the tenant's other key reads them."""
    key, known = new_key(keys, "acme")
    second, _ = new_key(keys, "acme")
    with serving(gateway.settings) as url, httpx2.Client(base_url=url, timeout=30) as other:
        turn_id = gateway.http.post("/v1/turns", json=gateway.defaults, headers=bearer(key)).json()["id"]
        assert other.get(f"/v1/turns/{turn_id}", headers=bearer(key)).status_code == 200
        keys.revoke(known.id)
        for client in (gateway.http, other):
            problem_of(client.get(f"/v1/turns/{turn_id}", headers=bearer(key)), 401, "unauthorized")
            assert client.get(f"/v1/turns/{turn_id}", headers=bearer(second)).status_code == 200


@pytest.mark.one_database("sqlite")
@pytest.mark.parametrize(
    "given",
    [
        [b"Bearer " + UNKNOWN.encode() + b"\xff"],
        [b"bearer hk_\xc3\xa4"],
        [b"Bearer hk_" + b"x" * 50_000],
        [b"Token " + UNKNOWN.encode()],
        [b"Bearer Bearer " + UNKNOWN.encode()],
        [UNKNOWN.encode()],
        [b"Bearer a", b"Bearer " + UNKNOWN.encode()],
        [b"Bearer " + UNKNOWN.encode() + b", Bearer " + UNKNOWN.encode()],
    ],
)
def test_what_only_looks_like_a_key_is_refused_with_words(gateway: Gateway, given: list[bytes]) -> None:
    """Any text that contains a key's prefix is checked as a key, however it is written."""
    headers = [(b"Authorization", value) for value in given]
    problem_of(gateway.http.get("/v1/turns", headers=headers), 401, "unauthorized")


@pytest.mark.one_database("sqlite")
@pytest.mark.parametrize(
    "given", [[b""], [b"Bearer"], [b"Bearer x"], [b"Bearer \xff"], [b"Basic dTpw"], [b"Bearer x", b"Basic y"]]
)
def test_what_is_no_key_at_all_does_not_matter_on_this_machine(gateway: Gateway, given: list[bytes]) -> None:
    """A development gateway ignores other credentials, because OpenAI's clients always send some."""
    headers = [(b"Authorization", value) for value in given]
    assert gateway.http.get("/v1/turns", headers=headers).status_code == 200


def test_good_key_is_found_whatever_is_around_it(gateway: Gateway, keys: SqlApiKeys) -> None:
    """The scheme may be in lower case, with more white space, and the request may come from a page."""
    key, _ = new_key(keys, "acme")
    for value in (f"bearer {key}", f"Bearer \t  {key}"):
        headers = {"Authorization": value, "Origin": "https://page.example"}
        assert gateway.http.get("/v1/turns", headers=headers).status_code == 200


def test_nobody_is_refused_because_the_database_is_away(sqlite_url: str) -> None:
    """The answer is 503, also in OpenAI's format, because a client must not discard its key."""
    with serving(Settings(database_url="postgresql://u:secret@127.0.0.1:1/x", redis_url=NOWHERE)) as url:
        away = httpx2.get(f"{url}/v1/turns", headers=bearer(UNKNOWN), timeout=30)
        assert "secret" not in problem_of(away, 503, "not_ready")["detail"]
        told = httpx2.get(f"{url}/v1/models", headers=bearer(UNKNOWN), timeout=30)
        assert (told.status_code, told.json()["error"]["code"]) == (503, "not_ready")
        problem_of(httpx2.get(f"{url}/v1/turns", headers=bearer("hk_no-key"), timeout=30), 401, "unauthorized")
    away_keys = Keys(create_engine("postgresql://u:secret@127.0.0.1:1/x"))
    assert asyncio.run(away_keys.still_accepts(UNKNOWN))
    with serving(Settings(database_url=sqlite_url, redis_url=NOWHERE)) as url:
        problem_of(httpx2.get(f"{url}/v1/turns", headers=bearer(UNKNOWN), timeout=30), 401, "unauthorized")


def test_keys_of_a_database_that_is_not_migrated_are_503(gateway: Gateway) -> None:
    """Without its table, nobody can say whether a key is valid."""
    with gateway.worker.engine.begin() as connection:
        connection.execute(text("ALTER TABLE api_keys RENAME TO gone"))
    problem_of(gateway.http.get("/v1/turns", headers=bearer(UNKNOWN)), 503, "not_ready")
    assert gateway.http.get("/v1/turns").status_code == 200


def addresses() -> list[str]:
    """This machine's addresses that are not its loopback's."""
    found = [each for interface in psutil.net_if_addrs().values() for each in interface]
    return [a.address for a in found if a.family is socket.AF_INET and not a.address.startswith("127.")]


@pytest.mark.parametrize("keyless", [True, False])
def test_clients_on_other_machines_need_a_key(sqlite_url: str, keyless: bool) -> None:
    """They need one even on a development gateway; only what anybody may read is open."""
    settings = Settings(database_url=sqlite_url, redis_url=NOWHERE, dev_keyless=keyless)
    with serving(settings, "0.0.0.0") as url, keys_on(sqlite_url) as keys:  # noqa: S104 - what is tested
        key, _ = new_key(keys, "acme")
        port = url.rpartition(":")[2]
        for address in addresses():
            there = f"http://{address}:{port}"
            refused = httpx2.get(f"{there}/v1/turns", trust_env=False, timeout=30)
            assert "harness keys create" in problem_of(refused, 401, "unauthorized")["detail"]
            assert refused.headers["www-authenticate"] == "Bearer"
            assert httpx2.get(f"{there}/v1/turns", headers=bearer(key), trust_env=False, timeout=30).status_code == 200
            assert httpx2.get(f"{there}/healthz", trust_env=False, timeout=30).status_code == 200


# --- what they see of each other --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """The ids of what a tenant has, one of each kind."""

    turn_id: str
    session_id: str
    artifact_id: str
    batch_id: str


@pytest.fixture
def theirs(gateway: Gateway, keys: SqlApiKeys, tmp_path: Path) -> Theirs:
    """A tenant whose turn waits for a person, with events, a score, an artifact and a webhook."""
    with as_tenant(gateway, keys, "acme") as acme:
        body = {**gateway.defaults, "session_id": "their-session", "metadata": {"secret": "theirs"}}
        item = {"custom_id": "theirs", "params": body}
        posted = acme.post("/v1/batches", json={"requests": [item]}, headers={"Idempotency-Key": "k"})
        batch_id = posted.json()["id"]
        ((turn_id,),) = [[each["id"] for each in acme.get("/v1/turns").json()["data"]]]
    found = Theirs(turn_id=turn_id, session_id="their-session", artifact_id="art_theirs", batch_id=batch_id)
    approval = {"expires_at": 4e9}
    gateway.worker.call(turn_id, 0, 0, approval=approval)
    gateway.worker.change(turn_id, status="requires_action")
    gateway.worker.event(turn_id, "turn.requires_action")
    now = {"expires_at": 4e9, "created_at": 0.0}
    of = {"turn_id": turn_id, "session_id": found.session_id, "call_id": "0.0", "tenant": "acme"}
    url = FsspecBlobs(tmp_path.as_uri()).put(artifact_key(turn_id, found.artifact_id), DATA.encode())
    row = {"id": found.artifact_id, "url": url, "size_bytes": len(DATA), "summary": "s", **of, **now}
    with gateway.worker.engine.begin() as connection:
        connection.execute(insert(artifacts).values(row))
        connection.execute(insert(scores).values(turn_id=turn_id, judge="j", score=0.5, at=1.0))
        told = {"told_seq": 1, "seq": 1, "attempt": 1, "failures": 0}
        connection.execute(insert(webhooks).values(turn_id=turn_id, url="https://h.example/", host="h.example", **told))
    return found


def rows(gateway: Gateway, theirs: Theirs) -> list[Any]:
    """Everything that must not change."""
    wanted = (select(turns).where(turns.c.id == theirs.turn_id), select(idempotency_keys))
    with gateway.worker.engine.connect() as connection:
        return [row for each in wanted for row in connection.execute(each)]


def requests(document: dict[str, Any], ids: dict[str, str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each request for one thing that has an id, from the API's own description: method, path and options."""
    for template, operations in document["paths"].items():
        named = re.findall(r"{(\w+)}", template)
        if not template.startswith("/v1/") or not named or named == ["model"]:
            continue
        path = template.format(**ids)
        for method in operations:
            if method == "post":
                yield method, path, {"json": TAKES_A_BODY.get(template, {})}
                continue
            yield method, path, {}
            yield method, path, {"headers": SSE}
            yield method, path, {"headers": {**SSE, "Last-Event-ID": "1"}}
            yield method, path, {"headers": {"Range": "bytes=0-9"}}
            yield "head", path, {}


def test_what_is_another_tenants_is_not_there(gateway: Gateway, keys: SqlApiKeys, theirs: Theirs) -> None:
    """Each route answers, byte for byte, as for an id that never existed, and asking changes nothing."""
    document = gateway.http.get("/openapi.json").json()
    before = rows(gateway, theirs)
    woken = gateway.worker.wake_ups(theirs.turn_id)
    never = {name: str(value)[:-1] + "_" for name, value in ids_of(theirs).items()}
    with as_tenant(gateway, keys, "other") as other:
        asked = list(zip(requests(document, ids_of(theirs)), requests(document, never), strict=True))
        assert len(asked) > 20
        for (method, path, options), (_, nowhere, _) in asked:
            answers = [other.request(method, each, **options) for each in (path, nowhere)]
            assert answers[0].status_code in (404, 422), (method, path, answers[0].text)
            assert told(answers[0], theirs, never) == told(answers[1], theirs, never), (method, path)
    assert rows(gateway, theirs) == before
    assert gateway.worker.wake_ups(theirs.turn_id) == woken


def ids_of(theirs: Theirs) -> dict[str, str]:
    """The ids, by the names that paths have for them."""
    return asdict(theirs)


def told(answer: httpx2.Response, theirs: Theirs, never: dict[str, str]) -> tuple[Any, ...]:
    """The whole answer, with one placeholder for the id that was asked for."""
    text = answer.text
    for each in (*ids_of(theirs).values(), *never.values()):
        text = text.replace(each, "ID")
    headers = {name: value for name, value in answer.headers.items() if name != "date"}
    return answer.status_code, headers, text


def test_the_tenant_itself_has_all_of_it(gateway: Gateway, keys: SqlApiKeys, theirs: Theirs, tmp_path: Path) -> None:
    """Another key of the tenant reads everything that is denied to other tenants."""
    with gateway_again(gateway, tmp_path) as url, as_tenant(gateway, keys, "acme") as acme:
        for path in (
            *(f"/v1/turns/{theirs.turn_id}{part}" for part in ("", "/events", "/scores", "/usage", "/webhook")),
            *(f"/v1/responses/{theirs.turn_id}", f"/v1/sessions/{theirs.session_id}"),
            *(f"/v1/batches/{theirs.batch_id}", f"/v1/batches/{theirs.batch_id}/results"),
        ):
            assert acme.get(path).status_code == 200, path
        assert acme.get(f"{url}/v1/artifacts/{theirs.artifact_id}").text == DATA
        assert [turn["id"] for turn in acme.get("/v1/turns").json()["data"]] == [theirs.turn_id]
        assert acme.post(f"/v1/turns/{theirs.turn_id}/inputs", json={"message": "no"}).status_code == 202
        assert acme.post(f"/v1/turns/{theirs.turn_id}/cancel").status_code == 202
        assert acme.post(f"/v1/batches/{theirs.batch_id}/cancel").status_code == 202


def gateway_again(gateway: Gateway, directory: Path) -> Any:
    """A second gateway on the same database, which knows where artifacts are."""
    return serving(gateway.settings.model_copy(update={"artifact_url": directory.as_uri()}))


def test_lists_hold_nothing_of_another_tenants(gateway: Gateway, keys: SqlApiKeys, theirs: Theirs) -> None:
    """Lists and sums have nothing of others, whatever the filters; the list of agents is the same for all."""
    with as_tenant(gateway, keys, "other") as other:
        for query in (
            {},
            {"session_id": theirs.session_id},
            {"status": "requires_action"},
            {"metadata.secret": "theirs"},
            {"agent": "support", "limit": "1"},
            {"batch_id": theirs.batch_id},
        ):
            assert other.get("/v1/turns", params=query).json() == {"data": [], "next": None}
            assert [each["id"] for each in gateway.http.get("/v1/turns", params=query).json()["data"]] == []
            for by in ("agent", "day", "model", "session", "status", "metadata.secret"):
                added = other.get("/v1/usage", params={**query, "by": by}).json()
                assert (added["data"], added["groups"], added["total"]["turns"]) == ([], 0, 0), by
        for path in ("/v1/sessions", "/v1/batches"):
            assert other.get(path).json() == {"data": [], "next": None}
        assert [each["name"] for each in other.get("/v1/agents").json()["data"]] == ["support"]


@pytest.mark.parametrize("multitask", ["reject", "enqueue", "interrupt"])
def test_session_of_another_tenant_is_another_session(
    gateway: Gateway, keys: SqlApiKeys, theirs: Theirs, multitask: str
) -> None:
    """A session or an idempotency key with the same text is a separate one; the turns do not affect each other."""
    before = rows(gateway, theirs)[0]
    with as_tenant(gateway, keys, "other") as other:
        body = {**gateway.defaults, "session_id": theirs.session_id, "multitask": multitask}
        posted, repeated = (other.post("/v1/turns", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2))
        assert (posted.status_code, repeated.status_code) == (202, 202), posted.text
        mine = posted.json()
        assert mine["id"] == repeated.json()["id"] != theirs.turn_id
        session = other.get(f"/v1/sessions/{theirs.session_id}").json()
        assert (session["turns"], session["last_turn_id"]) == (1, mine["id"])
        later = other.post("/v1/turns", json={**body, "multitask": multitask.replace("reject", "enqueue")})
        assert later.status_code == 202, later.text
    row = gateway.worker.row(mine["id"])
    assert (row.tenant, row.number, row.waits) == ("other", 1, False)
    assert rows(gateway, theirs)[0] == before


def test_fork_is_of_ones_own_turn_whatever_its_session_is_called(
    gateway: Gateway, keys: SqlApiKeys, theirs: Theirs
) -> None:
    """Who has a session of that name forks a turn in it, and does not find another tenant's there."""
    with as_tenant(gateway, keys, "other") as other:
        body = {**gateway.defaults, "session_id": theirs.session_id}
        mine = other.post("/v1/turns", json=body).json()["id"]
        forks = [other.post(f"/v1/turns/{each}/fork", json={"from_step": 0}) for each in (mine, theirs.turn_id)]
    assert [fork.status_code for fork in forks] == [202, 404]


def test_batch_follows_no_turn_of_another_tenants_session(gateway: Gateway, keys: SqlApiKeys, theirs: Theirs) -> None:
    """Its turn waits for none that goes on in a session of the same name, and none there learns of a follower."""
    before = rows(gateway, theirs)[0]
    body = {**gateway.defaults, "session_id": theirs.session_id}
    with as_tenant(gateway, keys, "other") as other:
        gateway.worker.finish(other.post("/v1/turns", json=body).json()["id"])
        posted = other.post("/v1/batches", json={"requests": [{"custom_id": "mine", "params": body}]})
        (mine,) = other.get("/v1/turns", params={"batch_id": posted.json()["id"]}).json()["data"]
    row = gateway.worker.row(mine["id"])
    assert (row.tenant, row.number, row.wake_at) == ("other", 2, row.created_at)
    assert rows(gateway, theirs)[0] == before


@pytest.mark.parametrize("never", ["never-was", "\N{SNOWMAN}"])
def test_conversation_of_another_tenant_cannot_be_gone_on_with(
    gateway: Gateway, keys: SqlApiKeys, theirs: Theirs, never: str
) -> None:
    """OpenAI's clients are told that there is no such response; the same conversation name is one of their own."""
    before = rows(gateway, theirs)[0]
    with as_tenant(gateway, keys, "other") as other:

        def asked(**body: Any) -> httpx2.Response:
            return other.post("/v1/responses", json={"model": "support", "input": "x", "background": True, **body})

        refused, nowhere = (asked(previous_response_id=each) for each in (theirs.turn_id, never))
        assert refused.status_code == nowhere.status_code == 404
        assert refused.text.replace(theirs.turn_id, "ID") == nowhere.text.replace(never, "ID")
        mine = asked(conversation=theirs.session_id)
        assert mine.status_code == 200, mine.text
        follows = asked(previous_response_id=mine.json()["id"])
        assert follows.status_code == 200, follows.text
    assert gateway.worker.row(mine.json()["id"]).tenant == "other"
    assert rows(gateway, theirs)[0] == before


def test_stream_of_events_is_the_tenants_until_its_end(gateway: Gateway, keys: SqlApiKeys) -> None:
    """Live events are distributed by the turn's id alone, so a stream checks its tenant before it starts."""
    with as_tenant(gateway, keys, "acme") as acme, as_tenant(gateway, keys, "other") as other:
        turn_id = acme.post("/v1/turns", json=gateway.defaults).json()["id"]
        with acme.stream("GET", f"/v1/turns/{turn_id}/events", headers=SSE) as stream:
            lines = stream.iter_lines()
            first = next(line for line in lines if line.startswith("event:"))
            problem_of(other.get(f"/v1/turns/{turn_id}/events", headers=SSE), 404, "not_found")
            gateway.worker.finish(turn_id)
            rest = [line for line in lines if line.startswith("event:")]
    assert [first, *rest] == ["event: turn.queued", "event: turn.completed"]


@pytest.mark.one_database("postgres")
def test_stream_ends_soon_after_its_key_is_no_longer_accepted(
    gateway: Gateway, keys: SqlApiKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream of a revoked or expired key ends without later events; one with another key continues."""
    monkeypatch.setattr(permission, "ASK_S", 0.1)
    (good, _), *bad = (new_key(keys, "acme", days=1) for _ in range(3))
    turn_id = gateway.http.post("/v1/turns", json=gateway.defaults, headers=bearer(good)).json()["id"]
    path = f"/v1/turns/{turn_id}/events"
    with ExitStack() as streams:

        def heard(key: str) -> Iterator[str]:
            """The stream's events, once the first has come."""
            stream = gateway.http.stream("GET", path, headers={**SSE, **bearer(key)})
            lines = (line for line in streams.enter_context(stream).iter_lines() if line.startswith("event:"))
            assert next(lines) == "event: turn.queued"
            return lines

        (_, revoked), (_, expired) = bad
        listening = [heard(key) for key, _ in bad]
        goes_on = heard(good)
        keys.revoke(revoked.id)
        with gateway.worker.engine.begin() as connection:
            connection.execute(update(api_keys).where(api_keys.c.id == expired.id).values(expires_at=db_now()))
        assert [list(lines) for lines in listening] == [[], []]
        gateway.worker.finish(turn_id)
        assert list(goes_on) == ["event: turn.completed"]


@pytest.mark.one_database("postgres")
def test_openai_stream_ends_without_an_answer_once_its_key_is_revoked(
    gateway: Gateway, keys: SqlApiKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the turn says after that is not sent."""
    monkeypatch.setattr(permission, "ASK_S", 0.1)
    key, known = new_key(keys, "acme")
    body = {"model": "support", "messages": [{"role": "user", "content": "Where is it?"}], "stream": True}
    with gateway.http.stream("POST", "/v1/chat/completions", json=body, headers=bearer(key)) as stream:
        lines = stream.iter_lines()
        turn_id = json.loads(next(lines).removeprefix("data: "))["id"]
        gateway.worker.change(turn_id, output_text="a secret")
        keys.revoke(known.id)
        rest = "\n".join(lines)
    assert "secret" not in rest
    assert '"code":"turn_unfinished"' in rest


def test_database_keeps_no_key(gateway: Gateway, keys: SqlApiKeys) -> None:
    """It stores neither the key nor a part of it."""
    key, _ = new_key(keys, "acme")
    with gateway.worker.engine.connect() as connection:
        kept: Sequence[Any] = connection.execute(select(api_keys)).one()
    assert not any(part in str(value) for value in kept for part in (key, key[3:], key[-8:]))


def test_events_are_read_for_their_tenant_alone(gateway: Gateway, theirs: Theirs) -> None:
    """The store itself checks whose turn it is, even if nobody looked the turn up before."""
    gateway.worker.change(gateway.posted()["id"], tenant="other")

    async def read(tenant: str) -> list[int]:
        engine = create_engine(gateway.settings.database_url)
        page = await Turns(engine, tenant, scan_places()).events(theirs.turn_id, EventsQuery())
        await engine.dispose()
        return [event.seq for event in page.data]

    assert (asyncio.run(read("acme")), asyncio.run(read("other"))) == ([1, 2], [])


@pytest.mark.usefixtures("uncounted")
@pytest.mark.gateway(tenant_queue=1, tenant_rate="2/hour")
def test_limits_are_each_keys_tenants(gateway: Gateway, keys: SqlApiKeys) -> None:
    """A tenant that has used its limits up takes nothing from another; two keys of a tenant share its limits."""
    clients = [as_tenant(gateway, keys, each) for each in ("acme", "acme", "other")]
    posts = [client.post("/v1/turns", json=gateway.defaults) for client in (*clients, clients[0])]
    for client in clients:
        client.close()
    told = [(post.status_code, post.json().get("code")) for post in posts]
    assert told == [(202, None), (429, "queue_full"), (202, None), (429, "rate_limited")]


def test_sweep_sends_its_key_to_a_running_stack(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep asks the gateway for its agents with the key, and says what to do if it is missing or refused."""
    with serving(Settings(database_url=sqlite_url, redis_url=NOWHERE)) as url, keys_on(sqlite_url) as keys:
        key, _ = new_key(keys, "acme")

        def settings(key: str) -> object:
            monkeypatch.setenv("HARNESS_API_KEY", key)
            return sweep_settings(url, None, "tau2-retail")

        with pytest.raises(RequestRefused, match=r"asks for an API key\. Set HARNESS_API_KEY"):
            settings("")
        with pytest.raises(RequestRefused, match="refuses the API key"):
            settings(UNKNOWN)
        with pytest.raises(ConfigError, match="has no agent tau2-retail"):
            settings(key)
