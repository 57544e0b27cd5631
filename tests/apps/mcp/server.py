"""A real MCP server for the tests, over standard input and output, or streamable HTTP on a port.

``python -m tests.apps.mcp.server [PORT]``. What its tools do, they write down in the file named by ``NOTES``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel, Field

KEY = "agent-harness/idempotency-key"

server = MCPServer("tests", log_level="ERROR")


def note(event: str, **more: object) -> None:
    """Write down what happens."""
    line = json.dumps({"event": event, "pid": os.getpid(), **more})
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{line}\n")


def times(event: str) -> int:
    """How often it happened."""
    return Path(os.environ["NOTES"]).read_text().count(f'"{event}"')


def block() -> None:
    """Hang, with a child that does as well."""
    subprocess.Popen(["sleep", "1000"])
    note("hangs")
    threading.Event().wait(1_000)


@server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def wipe() -> str:
    """Destroy."""
    return "wiped"


@server.tool()
def write(text: str, ctx: Context[Any, Any]) -> str:
    """Write a text down."""
    key = dict(ctx.request_context.meta or {}).get(KEY)
    note("wrote", text=text, key=key, token=(ctx.headers or {}).get("x-token"))
    return f"wrote {text}"


@server.tool()
async def linger(s: float, once: bool = False) -> str:
    """Take a while; with ``once``, only the first time."""
    note("lingers")
    try:
        await asyncio.sleep(0 if once and times("lingers") > 2 else s)
    except BaseException:
        note("cancelled")
        raise
    return "lingered"


@server.tool()
async def hang() -> str:
    """Hang, and hear nothing of anybody, not even of the end."""
    block()
    return "never"


@server.tool()
def route(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})], ctx: Context[Any, Any]) -> str:
    """Wants its argument in a header too, over HTTP, for whoever routes requests."""
    return f"{region} by {(ctx.headers or {}).get('mcp-param-region')}"


@server.tool()
def fail(words: str) -> str:
    """Fail."""
    raise ToolError(words)


class Seats(BaseModel):
    """What a form asks for."""

    seats: int


@server.tool()
async def book(ctx: Context[Any, Any], seats: int | None = None, asks: bool = False) -> str | InputRequiredResult:
    """Ask somebody for what is not said: by its answer, or by a request of its own."""
    note("books")
    if seats is not None:
        return f"{seats} seats"
    if asks:
        return str(await ctx.elicit("How many?", Seats))
    form = ElicitRequestFormParams(message="How many?", requested_schema=Seats.model_json_schema())
    return InputRequiredResult(input_requests={"seats": ElicitRequest(params=form)})


@server.tool()
def process() -> str:
    """Which process this is, and what it was told."""
    return json.dumps({"pid": os.getpid(), "token": os.environ.get("TOKEN"), "home": "HARNESS_HOME" in os.environ})


@server.tool()
def show() -> CallToolResult:
    """A bit of everything."""
    pixels = base64.b64encode(bytes(10)).decode()
    return CallToolResult(
        content=[
            TextContent(text="  two\nlines "),
            ImageContent(data=pixels, mime_type="image/png"),
            EmbeddedResource(resource=TextResourceContents(uri="notes://1", text="a note")),
            EmbeddedResource(resource=BlobResourceContents(uri="notes://2", blob=pixels)),
            ResourceLink(uri="notes://3", name="third"),
        ]
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
