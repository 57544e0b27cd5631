"""A server written by hand, of the protocol's older kind, that lists odd tools: ``python tests/apps/mcp/odd.py KIND``.

``many`` are 300, page by page; ``names`` are hard to say; of ``schema``, one is bad; ``none`` are none; and ``strict``
goes when it is asked anything before its handshake; ``hints`` say what they do; ``nonsense`` answers a call with such,
and ``prints`` prints something before it answers one.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MANY = 300
PAGE = 70
NAMES = ["a.b", "a_b", "a/b", "x" * 100, "ünï", "plain"]
TOOLS = {
    "many": [f"t{number}" for number in range(MANY)],
    "names": NAMES,
    "schema": ["good", "bad"],
    "alike": ["x.y", "x_y", "x_y_b24ca9"],
    "none": [],
    "strict": ["plain"],
    "nonsense": ["plain"],
    "prints": ["plain"],
    "hints": ["reads", "wipes", "writes", "hides"],
}
HINTS = {
    "reads": {"readOnlyHint": True, "idempotentHint": True},
    "wipes": {"destructiveHint": True},
    "writes": {"readOnlyHint": True},
}
VERSION = "2025-06-18"


def schema(name: str) -> dict[str, Any]:
    """Of a tool's arguments."""
    return {"type": "object", "properties": {"a": {"type": "nonsense" if name == "bad" else "string"}}}


def page(params: dict[str, Any]) -> dict[str, Any]:
    """Some of the tools."""
    names, begin = TOOLS[sys.argv[1]], int(params.get("cursor", 0))
    more = {"nextCursor": str(begin + PAGE)} if begin + PAGE < len(names) else {}
    return {"tools": [told(name) for name in names[begin : begin + PAGE]], **more}


def told(name: str) -> dict[str, Any]:
    """One tool."""
    return {"name": name, "inputSchema": schema(name), "annotations": HINTS.get(name, {})}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request, or the error."""
    match method:
        case "initialize":
            told = {"name": "odd", "version": "1"}
            return {"result": {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": told}}
        case "tools/list":
            return {"result": page(params)}
        case "tools/call" if sys.argv[1] == "nonsense":
            return {"result": {"content": 7}}
        case "tools/call":
            return {"result": {"content": [{"type": "text", "text": params["name"]}]}}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


def main() -> None:
    """Serve."""
    is_new = True
    for line in sys.stdin:
        asked = json.loads(line)
        if is_new and sys.argv[1] == "strict" and asked["method"] != "initialize":
            return
        is_new = False
        if (sys.argv[1], asked["method"]) == ("prints", "tools/call"):
            told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "a customer's words"}}
            sys.stdout.write(f"a customer's words\n{json.dumps(told)}\n")
        if "id" in asked:
            answered = {"jsonrpc": "2.0", "id": asked["id"], **answer(asked["method"], asked.get("params", {}))}
            sys.stdout.write(json.dumps(answered) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
