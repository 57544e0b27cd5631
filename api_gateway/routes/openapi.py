"""The parts of the OpenAPI document that the routes' signatures do not give: bodies, some parameters, and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import WithDefaultSchema

from api_gateway.batches.answers import BatchResult
from api_gateway.batches.requests import BatchRequest
from api_gateway.middleware.guard import GUARDED
from api_gateway.openai_facade.requests import ChatRequest, ResponseRequest
from api_gateway.problems import CODES, MEDIA_TYPE, OpenAIErrorDocument, ProblemDocument
from api_gateway.requests.turns import ForkRequest, InputRequest, TurnRequest

BODIES: Final = (TurnRequest, ForkRequest, InputRequest, BatchRequest, ResponseRequest, ChatRequest)
LINES: Final = (BatchResult,)
JSON_LINES: Final = "application/x-ndjson"
REF: Final = "#/components/schemas/{model}"

Parameter: TypeAlias = Mapping[str, Any]
IDEMPOTENCY_KEY: Final[Parameter] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "makes repeating the request harmless for a day",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
PREFER: Final[Parameter] = {
    "name": "Prefer",
    "in": "header",
    "description": "`wait=SECONDS`: wait for the turn's end, at most 60 seconds (RFC 7240)",
    "schema": {"type": "string", "examples": ["wait=20"]},
}
TRACEPARENT: Final[Parameter] = {
    "name": "traceparent",
    "in": "header",
    "description": "the caller's span, which becomes the parent of the turn's span (W3C Trace Context)",
    "schema": {"type": "string", "examples": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]},
}
METADATA: Final[Parameter] = {
    "name": "metadata",
    "in": "query",
    "description": "`metadata.KEY=VALUE`: only turns whose metadata have that text",
    "style": "form",
    "explode": True,
    "schema": {
        "type": "object",
        "patternProperties": {r"^metadata\.": {"type": "string"}},
        "additionalProperties": False,
    },
}
"""An exploded object: its members are query parameters, and its own name appears nowhere."""

BEARER: Final[Mapping[str, str]] = {
    "type": "http",
    "scheme": "bearer",
    "description": "an API key made by `harness keys create`; the request acts for the key's tenant",
}
KEYLESS: Final[Mapping[str, Sequence[str]]] = {}
"""No security: clients on the gateway's own machine need no key if keyless use is on."""


def body_schema(model: type[BaseModel], *parameters: Parameter) -> dict[str, Any]:
    """``openapi_extra`` of a route that reads its body as ``model`` and has these parameters."""
    schema = {"$ref": REF.format(model=model.__name__)}
    body = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
    return {**body, "parameters": list(parameters)} if parameters else body


def lines_of(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that answers with JSON objects, one a line."""
    schema = {"$ref": REF.format(model=model.__name__)}
    return {200: {"description": "a JSON object a line", "content": {JSON_LINES: {"schema": schema}}}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that may answer with these problems, in addition to those of every ``/v1`` route."""
    return _errors(ProblemDocument, MEDIA_TYPE, statuses)


def openai_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route for OpenAI's clients that may answer with these errors, in addition to those of all."""
    return _errors(OpenAIErrorDocument, "application/json", statuses)


def _errors(model: type[BaseModel], media_type: str, statuses: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": REF.format(model=model.__name__)}
    return {
        status: {"description": _codes_of(status), "content": {media_type: {"schema": schema}}}
        for status in sorted({401, 403, 422, 500, 503, *statuses})
    }


def _codes_of(status: int) -> str:
    return ", ".join(code for code, told_with in CODES.items() if told_with == status)


def install_openapi(app: FastAPI) -> None:
    """Have ``app.openapi`` return the complete document, which is built once."""
    build = app.openapi

    def document() -> dict[str, Any]:
        return app.openapi_schema or _complete(build())  # FastAPI keeps what it builds

    app.openapi = document  # pyright: ignore[reportAttributeAccessIssue] - FastAPI's own way to extend it


class _LeftOut(GenerateJsonSchema):
    """Schemas whose members may be left out instead of being null.

    Some generators of clients take a member with a default, even if it is null, for one that is always there.
    """

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        """The schema of a member with a default, without it if it is null."""
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    sent: list[tuple[type[BaseModel], Any]] = [
        (model, "validation") for model in (*BODIES, ProblemDocument, OpenAIErrorDocument)
    ]
    lines: list[tuple[type[BaseModel], Any]] = [(model, "serialization") for model in LINES]
    for models, generator in ((sent, _LeftOut), (lines, GenerateJsonSchema)):
        _, definitions = models_json_schema(models, ref_template=REF, schema_generator=generator)
        document["components"]["schemas"].update(definitions["$defs"])
    document["components"]["securitySchemes"] = {"key": BEARER}
    for path, operations in document["paths"].items():
        if path.startswith(GUARDED):
            for operation in operations.values():
                operation["security"] = [{"key": []}, KEYLESS]
    return document
