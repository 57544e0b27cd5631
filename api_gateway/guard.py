"""Who may use the API. Until there are keys: this machine alone, and only if it was asked for."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api_gateway.problems import Problem
from harness_worker.wire import TENANT

GUARDED: Final = "/v1"


class KeylessGuard:
    """Middleware: refuses ``/v1`` unless keyless use is on and the request comes from this machine.

    A page in a browser on this machine is not this machine's user: a foreign ``Origin``, or a ``Host`` that is no
    loopback name (DNS rebinding), is refused.

    Args:
        app: What is guarded.
        keyless: Whether keyless use is on.
    """

    def __init__(self, app: ASGIApp, *, keyless: bool) -> None:
        self._app = app
        self._keyless = keyless

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with its tenant in its state, or answer with the problem."""
        problem = None
        if _is_guarded(scope):
            problem = self._refusal(scope)
            scope["state"] = {**scope.get("state", {}), "tenant": TENANT}
        await (problem.response(scope["path"]) if problem else self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Problem | None:
        client = scope.get("client")
        if not self._keyless or (client and not is_loopback(client[0])):
            detail = "no API key is accepted here yet: use the API from its own machine, with HARNESS_DEV_KEYLESS=1"
            return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        named = [f"//{headers.get('host', 'localhost')}", *([origin] if origin else [])]
        if all(is_loopback(_host(url)) for url in named):
            return None
        return Problem(403, "forbidden", "keyless use is for this machine: call http://127.0.0.1 or http://localhost")


def _is_guarded(scope: Scope) -> bool:
    path = scope.get("path", "")
    return scope["type"] == "http" and (path == GUARDED or path.startswith(f"{GUARDED}/"))


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether ``host``, an address or a name, is this machine."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
