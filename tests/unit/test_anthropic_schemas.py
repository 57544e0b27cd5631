"""Schemas of tools, as they go out to Claude: valid in JSON Schema draft 2020-12, and unchanged if they were."""

from __future__ import annotations

import json
import threading
from typing import Any

import jsonschema_rs
import pytest

from harness_worker import Registry
from harness_worker.adapters.anthropic.requests import body_of
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.errors import ArgumentsInvalid
from harness_worker.ports import ModelRequest

DRAFT_2020: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
DRAFT_7: dict[str, Any] = {"$schema": "http://json-schema.org/draft-07/schema#"}
DRAFT_4: dict[str, Any] = {"$schema": "http://json-schema.org/draft-04/schema#"}
TEXT: dict[str, Any] = {"type": "string"}
COUNT: dict[str, Any] = {"type": "integer"}
OLD: dict[str, Any] = {"items": [TEXT, COUNT], "additionalItems": False}
NEW: dict[str, Any] = {"prefixItems": [TEXT, COUNT], "items": False}


def echo(args: dict[str, Any]) -> dict[str, Any]:
    """What was given."""
    return args


def a_tool(schema: dict[str, Any]) -> ToolSpec:
    """A tool that brings this schema."""
    registry = Registry()
    registry.add_tool(echo, name="raw", schema=schema, description="")
    return registry.tools["raw"]


def sent(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that a request to Claude has of a tool with this one."""
    request = ModelRequest(
        model="claude-sonnet-5-5",
        system="",
        tools=(a_tool(schema),),
        messages=(),
        step=0,
        metadata={},
        timeout_s=1.0,
        stop=threading.Event(),
    )
    (tool,) = body_of(request)["tools"]
    assert jsonschema_rs.meta.is_valid({**tool["input_schema"], **DRAFT_2020})
    return tool["input_schema"]


def filled(place: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The place with the schema in it."""
    return json.loads(json.dumps(place).replace('"HERE"', json.dumps(schema)))


def of(argument: dict[str, Any], draft: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of a schema
    """A schema of one argument, ``p``."""
    return {**draft, "type": "object", "properties": {"p": argument}, **more}


@pytest.mark.parametrize(
    ("draft", "old", "new"),
    [
        (DRAFT_7, {"items": [TEXT, COUNT]}, {"prefixItems": [TEXT, COUNT]}),
        (DRAFT_7, OLD, NEW),
        (DRAFT_7, {"items": [TEXT], "additionalItems": OLD}, {"prefixItems": [TEXT], "items": NEW}),
        (DRAFT_4, {"minimum": 3, "exclusiveMinimum": True}, {"exclusiveMinimum": 3}),
        (DRAFT_4, {"maximum": 3, "exclusiveMaximum": True}, {"exclusiveMaximum": 3}),
        (DRAFT_4, {"minimum": 3, "exclusiveMinimum": False}, {"minimum": 3}),
        (DRAFT_4, {"maximum": 3, "exclusiveMaximum": False}, {"maximum": 3}),
        (DRAFT_4, {"minimum": 3}, {"minimum": 3}),
    ],
    ids=str,
)
def test_schema_of_an_older_draft_goes_out_in_the_newest(
    draft: dict[str, Any], old: dict[str, Any], new: dict[str, Any]
) -> None:
    """Claude refuses a request with any other, and so every turn of the agent; the old draft is not named either."""
    assert sent(of(old, draft)) == of(new, {})


@pytest.mark.parametrize(
    "place",
    [
        *(
            {word: {"x": "HERE"}}
            for word in ("properties", "patternProperties", "definitions", "$defs", "dependencies")
        ),
        *({word: "HERE"} for word in ("additionalProperties", "propertyNames", "items", "contains", "not")),
        *({word: "HERE"} for word in ("if", "then", "else")),
        *({word: [TEXT, "HERE"]} for word in ("items", "anyOf", "allOf", "oneOf")),
    ],
    ids=str,
)
def test_schemas_are_rewritten_wherever_one_may_stand(place: dict[str, Any]) -> None:
    """They are rewritten however deep they stand."""
    new_place = {"prefixItems": place["items"]} if isinstance(place.get("items"), list) else place
    deep, new_deep = filled(place, of(OLD, {})), filled(new_place, of(NEW, {}))
    assert sent(of(deep, DRAFT_7)) == of(new_deep, {})


@pytest.mark.parametrize("word", ["enum", "const", "default", "examples"])
def test_data_is_left_alone(word: str) -> None:
    """A value that looks like a schema is what the tool asks for."""
    value = {**OLD, "minimum": 3, "exclusiveMinimum": True, "$schema": "x", "$ref": "#/properties/p/items/0"}
    asked = [value] if word in ("enum", "examples") else value
    assert sent(of({**OLD, word: asked}, DRAFT_7)) == of({**NEW, word: asked}, {})


def test_arguments_that_are_called_like_keywords_are_left_alone() -> None:
    """They are the tool's names."""
    names = {"items": TEXT, "additionalItems": TEXT, "exclusiveMinimum": TEXT, "minimum": TEXT, "$schema": TEXT}
    schema = {"type": "object", "properties": {**names, "p": OLD}, "dependencies": {"items": ["minimum"]}}
    assert sent({**DRAFT_7, **schema}) == {**schema, "properties": {**names, "p": NEW}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("#/properties/p/items/0", "#/properties/p/prefixItems/0"),
        ("#/properties/p/additionalItems", "#/properties/p/items"),
        ("#/properties/p/items/1/items", "#/properties/p/prefixItems/1/items"),
        ("#/properties/a~1%25/items/0", "#/properties/a~1%25/prefixItems/0"),
        ("#/properties/items", "#/properties/items"),
        ("#/properties/p", "#/properties/p"),
        ("#", "#"),
    ],
)
def test_references_lead_to_where_they_led(old: str, new: str) -> None:
    """Zod writes a type once, be it in a tuple, and refers to it afterwards."""
    listed = {"type": "array", "items": TEXT}
    p = {"items": [TEXT, listed], "additionalItems": TEXT}
    names = {"p": p, "a/%": {"items": [TEXT]}, "items": TEXT, "again": {"$ref": old}}
    new_p = {"prefixItems": [TEXT, listed], "items": TEXT}
    new_names = {"p": new_p, "a/%": {"prefixItems": [TEXT]}, "items": TEXT, "again": {"$ref": new}}
    assert sent({**DRAFT_7, "type": "object", "properties": names}) == {"type": "object", "properties": new_names}


@pytest.mark.parametrize("draft", [{}, DRAFT_2020, DRAFT_7], ids=["none", "2020-12", "draft-07"])
def test_schema_that_is_valid_goes_out_as_it_is(draft: dict[str, Any]) -> None:
    """To the byte, the name of its draft included: the prompts of running sessions are cached."""
    point = {"items": TEXT, "enum": [{"items": [1]}], "minimum": 1, "exclusiveMinimum": 0}
    schema = of(point, draft, definitions={"q": {"$ref": "#/properties/p/items"}}, dependencies={"p": ["q"]})
    assert json.dumps(sent(schema)) == json.dumps(dict(a_tool(schema).schema))
    assert sent(schema) == schema


def test_what_stands_only_where_claude_takes_nothing_changes_nothing() -> None:
    """Words left out at the top are no reason to rewrite the rest."""
    schema = of(TEXT, DRAFT_7)
    assert sent({**schema, "anyOf": [of(OLD, {}), of(TEXT, {})]}) == schema


def test_arguments_are_checked_by_the_draft_of_their_schema() -> None:
    """What goes out is for the model alone: in draft 7, for one, nothing counts beside a reference."""
    others = {"$ref": "#/definitions/text", "maxLength": 1}
    tool = a_tool(of(OLD, DRAFT_7, additionalProperties=others, definitions={"text": TEXT}))
    assert tool.bind({"p": ["a", 1], "q": "long"}).values == {"p": ["a", 1], "q": "long"}
    with pytest.raises(ArgumentsInvalid, match=r"^p\[1\]: "):
        tool.bind({"p": ["a", "b"]})
    assert tool.schema["$schema"] == DRAFT_7["$schema"]
