"""The gateway's OpenAPI document: it describes what is answered, in words that generated clients know."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import jsonschema_rs
import pytest

from tests.integration.gateway_kit import Gateway, problem_of


def test_openapi_describes_what_is_answered(gateway: Gateway) -> None:
    """The document has every route, and real answers fit its schemas."""
    document = gateway.http.get("/openapi.json").json()
    assert set(document["paths"]) == {
        *("/v1/turns", "/v1/turns/{turn_id}", "/v1/turns/{turn_id}/cancel", "/v1/turns/{turn_id}/inputs"),
        "/v1/turns/{turn_id}/fork",
        *("/v1/turns/{turn_id}/scores", "/v1/turns/{turn_id}/webhook", "/v1/turns/{turn_id}/usage", "/v1/usage"),
        *("/v1/batches", "/v1/batches/{batch_id}", "/v1/batches/{batch_id}/cancel", "/v1/batches/{batch_id}/results"),
        *("/v1/turns/{turn_id}/events", "/v1/agents", "/v1/sessions", "/v1/sessions/{session_id}"),
        "/v1/artifacts/{artifact_id}",
        *("/v1/models", "/v1/models/{model}", "/v1/chat/completions"),
        *("/v1/responses", "/v1/responses/{turn_id}", "/v1/responses/{turn_id}/cancel"),
        *("/healthz", "/readyz", "/metrics"),
    }
    answer = gateway.post()
    posting = document["paths"]["/v1/turns"]["post"]
    _describes(document, posting, answer, 202)
    _describes(document, posting, gateway.post(agent="nobody"), 404)
    _fits(document, _body(posting), {**gateway.defaults, "budget": {"max_steps": 1}, "metadata": {"a": "b"}})
    asking = document["paths"]["/v1/responses"]["post"]
    asked = {"model": gateway.defaults["agent"], "input": [{"role": "user", "content": "x"}], "background": True}
    _fits(document, _body(asking), asked)
    _describes(document, asking, gateway.http.post("/v1/responses", json=asked), 200)
    _describes(document, asking, gateway.http.post("/v1/responses", json={**asked, "n": 2}), 422)
    _check_batches(document, gateway)
    listing = document["paths"]["/v1/turns"]["get"]
    _describes(document, listing, gateway.http.get("/v1/turns"), 200)
    for path in ("/v1/turns/{turn_id}/usage", "/v1/usage"):
        told = gateway.http.get(path.format(turn_id=answer.json()["id"]))
        _describes(document, document["paths"][path]["get"], told, 200)
    assert {"401", "403", "422", "500", "503"} <= set(listing["responses"])
    assert gateway.http.get("/docs").status_code == 200
    problem_of(gateway.http.get("/redoc"), 404, "not_found")


def _check_batches(document: dict[str, Any], gateway: Gateway) -> None:
    posting = document["paths"]["/v1/batches"]["post"]
    items = [{"custom_id": "a", "params": {**gateway.defaults, "budget": {"max_steps": 1}}}]
    body = _body(posting)
    _fits(document, body, {"requests": items})
    with pytest.raises(jsonschema_rs.ValidationError):
        _fits(document, body, {"requests": [{**items[0], "custom_id": "a b"}]})
    made = gateway.http.post("/v1/batches", json={"requests": items})
    _describes(document, posting, made, 202)
    gateway.worker.finish(gateway.ids(batch_id=made.json()["id"])[0])
    reading = document["paths"]["/v1/batches/{batch_id}/results"]["get"]
    _describes(document, reading, gateway.http.get(made.json()["results_url"]), 200)


@pytest.mark.parametrize(
    ("include", "parts"),
    [
        ("", set[str]()),
        ("?include=messages", {"context", "messages"}),
        ("?include=scores", {"scores"}),
        ("?include=messages,scores", {"context", "messages", "scores"}),
    ],
)
def test_openapi_describes_a_turn_with_any_of_its_parts(gateway: Gateway, include: str, parts: set[str]) -> None:
    """One schema fits all variants; parts that were not asked for are absent, and each part has its own shape."""
    document = gateway.http.get("/openapi.json").json()
    answer = document["paths"]["/v1/turns/{turn_id}"]["get"]["responses"]["200"]["content"]["application/json"]
    turn = gateway.http.get(f"/v1/turns/{gateway.post().json()['id']}{include}").json()
    _fits(document, answer["schema"], turn)
    assert {"context", "messages", "scores"} & turn.keys() == parts
    if "messages" in parts:
        with pytest.raises(jsonschema_rs.ValidationError):
            _fits(document, answer["schema"], {**turn, "messages": [{"role": "user"}]})


def _describes(document: dict[str, Any], operation: dict[str, Any], answer: httpx2.Response, status: int) -> None:
    """See that an operation has such an answer."""
    assert answer.status_code == status
    content = operation["responses"][str(status)]["content"]
    _fits(document, content[answer.headers["content-type"]]["schema"], answer.json())


def _body(operation: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON schema
    """The schema of an operation's body."""
    return operation["requestBody"]["content"]["application/json"]["schema"]


def _fits(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:  # noqa: ANN401 - any JSON
    jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]}).validate(value)


@pytest.mark.one_database("sqlite")
def test_openapi_names_the_headers_and_the_filter_that_are_heeded(gateway: Gateway) -> None:
    """Each parameter is listed once with one schema, accepts real values, and affects real answers."""
    document = gateway.http.get("/openapi.json").json()
    for path in ("/v1/turns", "/v1/batches", "/v1/responses", "/v1/chat/completions"):
        key = _parameters(document, path, "post")["header", "Idempotency-Key"]
        _fits(document, key["schema"], "k" * 255)
        assert not jsonschema_rs.is_valid(key["schema"], "")
    posting, forking = (_parameters(document, f"/v1/turns{path}", "post") for path in ("", "/{turn_id}/fork"))
    assert set(posting) == {("header", "Idempotency-Key"), ("header", "Prefer"), ("header", "traceparent")}
    assert set(forking) == {*posting, ("path", "turn_id")}
    _fits(document, posting["header", "Prefer"]["schema"], "wait=0.1")
    listing = _parameters(document, "/v1/turns", "get")
    assert {name for _, name in listing} == {
        *("after", "limit", "status", "session_id", "agent", "batch_id", "parent_id", "metadata")
    }
    narrow = {"metadata.no": "such"}
    _fits(document, listing["query", "metadata"]["schema"], narrow)
    assert not jsonschema_rs.is_valid(listing["query", "metadata"]["schema"], {"no": "such"})
    adding_up = _parameters(document, "/v1/usage", "get")
    narrowed = {"status", "session_id", "agent", "batch_id", "parent_id", "metadata"}
    assert {name for _, name in adding_up} == {"from", "to", "by", "limit", *narrowed}
    _fits(document, adding_up["query", "from"]["schema"], "2026-01-31T18:00:00Z")
    headers = {"Idempotency-Key": "k", "Prefer": "wait=0.1"}
    posted = gateway.http.post("/v1/turns", json=gateway.defaults, headers=headers)
    assert posted.headers["preference-applied"] == "wait=0.1"
    assert gateway.http.get("/v1/turns", params=narrow).json()["data"] == []


def _parameters(document: dict[str, Any], path: str, method: str) -> dict[tuple[str, str], Any]:
    """An operation's parameters by place and name."""
    parameters = document["paths"][path][method]["parameters"]
    found = {(each["in"], each["name"]): each for each in parameters}
    assert len(found) == len(parameters)
    for each in parameters:
        jsonschema_rs.meta.validate(each["schema"])
    return found


@pytest.mark.one_database("sqlite")
def test_openapi_references_nothing_that_is_missing(gateway: Gateway) -> None:
    """Each reference names a schema of the document."""
    document = gateway.http.get("/openapi.json").json()
    named = set(document["components"]["schemas"])
    referenced = {part.split('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]}
    assert referenced <= named


@pytest.mark.one_database("sqlite")
def test_openapi_lets_generated_clients_leave_out_what_may_be_left_out(gateway: Gateway) -> None:
    """Some generators take a member with a default for one that is always there, even if the default is ``null``."""
    schemas = gateway.http.get("/openapi.json").json()["components"]["schemas"]
    sent = ("TurnRequest", "BudgetRequest", "ForkRequest", "InputRequest", "BatchParams", "ChatRequest", "InputMessage")
    members = {
        f"{name}.{member}": schema
        for name in (*sent, "ResponseRequest", "ProblemDocument")
        for member, schema in schemas[name]["properties"].items()
    }
    assert [name for name, schema in members.items() if schema.get("default", ...) is None] == []
    assert schemas["TurnRequest"]["required"] == ["agent", "input"]


@pytest.mark.one_database("sqlite")
def test_openapi_bounds_numbers_in_the_words_of_json_schema(gateway: Gateway) -> None:
    """No bound is in pydantic's own terms, which clients do not know; a list's limit is 1 to 200."""
    document = gateway.http.get("/openapi.json").json()
    raw = ("ge", "le", "gt", "lt", "min_length", "max_length", "multiple_of")
    assert [name for name in raw if f'"{name}":' in json.dumps(document)] == []
    limit = _parameters(document, "/v1/turns", "get")["query", "limit"]["schema"]
    assert [jsonschema_rs.is_valid(limit, number) for number in (0, 1, 200, 201)] == [False, True, True, False]


@pytest.mark.one_database("sqlite")
def test_openapi_lets_people_enter_their_key(gateway: Gateway) -> None:
    """The page that shows the API has a button for the key, on exactly those routes that use it."""
    document = gateway.http.get("/openapi.json").json()
    (scheme,) = document["components"]["securitySchemes"].items()
    assert (scheme[1]["type"], scheme[1]["scheme"]) == ("http", "bearer")
    for path, operations in document["paths"].items():
        for operation in operations.values():
            wanted: Any = [{scheme[0]: []}, {}] if path.startswith("/v1/") else None
            assert operation.get("security") == wanted, path
