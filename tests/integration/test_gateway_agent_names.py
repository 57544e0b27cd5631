"""Agents of any name that may be declared: each route that takes one finds it, and what lists them shows it."""

from __future__ import annotations

from urllib.parse import quote

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness_worker.core.registration.registry import Registry
from tests.integration.gateway_kit import Gateway
from tests.integration.openai_kit import client_of

pytestmark = pytest.mark.one_database("sqlite")

NAMES = [
    *("a/b", "/a", "a/", "a//b", "../a", "a?b", "a#b", "a%b", "a%2Fb", "a+b", "a&b=c", "a b", " a "),
    *('a"b', "a\\b", "a,b", "a;b", "a:b", "[a]", "{a}", "\u00e4", "\u540d\u524d", "\U0001f98a"),
]


@pytest.mark.parametrize("name", NAMES)
def test_agent_of_any_name_is_found_by_every_route(gateway: Gateway, name: str) -> None:
    """In a path, in a query and in a body, with its name as it was declared."""
    Registry().agent(name, model="scripted:x")
    gateway.worker.publish_agent(name)
    posted = gateway.post(agent=name)
    assert posted.status_code == 202, posted.text
    turn_id = posted.json()["id"]
    gateway.worker.finish(turn_id)
    assert gateway.ids(agent=name) == [turn_id]
    assert [each["agent"] for each in gateway.http.get("/v1/turns").json()["data"]] == [name]
    usage = gateway.http.get("/v1/usage", params={"agent": name, "by": "agent"})
    assert [group["key"] for group in usage.json()["data"]] == [name]
    assert name in [each["name"] for each in gateway.http.get("/v1/agents").json()["data"]]
    raw = httpx2.get(f"{gateway.url}/v1/models/{quote(name, safe='')}", timeout=30)
    assert (raw.status_code, raw.json().get("id")) == (200, name), raw.text
    with client_of(gateway.url) as client:
        assert client.openai.models.retrieve(name).id == name
        response = client.openai.responses.create(model=name, input="x", background=True)
        assert response.model == name
    families = text_string_to_metric_families(gateway.http.get("/metrics").text)
    labels = [sample.labels["agent"] for family in families for sample in family.samples if "agent" in sample.labels]
    assert name in labels
