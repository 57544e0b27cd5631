"""Who may use the API, and as which tenant: holders of a key, and without one this machine alone, if that is on."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api_gateway.middleware.keys import Keys, key_in
from api_gateway.problems import Problem
from harness_worker.urls import host_of, is_loopback
from harness_worker.wire import DEFAULT_TENANT

GUARDED: Final = "/v1"
_NO_BROWSERS: Final = (
    "browsers cannot call this API: the OPTIONS request that they send first carries no API key; have pages ask a "
    "server of yours, which calls the API with its key"
)
OF_WEBHOOKS: Final = ("webhook-id", "webhook-signature")


class Guard:
    """Middleware that lets in requests for ``/v1``, each on behalf of a tenant, whose name it puts in their state.

    The state also gets ``may_go_on``, which tells long answers whether the key is still accepted.

    A request with a key acts for the key's tenant, wherever it comes from: no page can make a browser send a key that
    the page does not have. A request without one acts for the default tenant if keyless use is on and it comes from
    this machine. But a page in a browser on this machine is not this machine's user, so without a key a ``Host`` that
    is no loopback name (DNS rebinding), an ``Origin`` that is not that host with its port, and a ``Sec-Fetch-Site`` of
    another page are refused. So are webhook deliveries: they come from this machine, but a tenant chose the target.

    Args:
        app: The application to guard.
        keys: The API keys of all tenants.
        keyless: Whether keyless use is on.
    """

    def __init__(self, app: ASGIApp, *, keys: Keys, keyless: bool) -> None:
        self._app = app
        self._keys = keys
        self._keyless = keyless

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer why it is refused."""
        app = self._app
        if _is_guarded(scope):
            try:
                scope["state"] = {**scope.get("state", {}), **await self._let_in(scope)}
            except Problem as problem:
                app = problem.response(scope["path"])
        await app(scope, receive, send)

    async def _let_in(self, scope: Scope) -> dict[str, Any]:
        """The state of a request that is let in: its tenant, and how to find out later whether that still holds."""
        headers = Headers(scope=scope)
        key = key_in(headers.getlist("authorization"))
        if key is not None:
            return {"tenant": await self._keys.tenant_of(key), "may_go_on": partial(self._keys.still_accepts, key)}
        try:
            self._check_keyless(scope.get("client"), headers)
        except Problem as problem:
            raise _for_preflight(problem) if _is_preflight(scope, headers) else problem from None
        return {"tenant": DEFAULT_TENANT, "may_go_on": _always}

    def _check_keyless(self, client: tuple[str, int] | None, headers: Headers) -> None:
        if not self._keyless or (client and not is_loopback(client[0])):
            detail = (
                "no API key: send Authorization: Bearer KEY, with a key that `harness keys create` made; "
                "without one only the gateway's own machine may use the API, with HARNESS_DEV_KEYLESS=1"
            )
            raise Problem("unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})
        if any(name in headers for name in OF_WEBHOOKS):
            detail = "a webhook may not call the API without an API key: give the turn the URL of another receiver"
            raise Problem("forbidden", detail)
        host = headers.get("host", "localhost")
        if not is_loopback(host_of(f"//{host}")):
            detail = "without an API key only this machine may use the API: call http://127.0.0.1 or http://localhost"
            raise Problem("forbidden", detail)
        if _is_of_another_page(host, headers):
            detail = "without an API key, pages of other hosts or ports may not call the API: have a server call it"
            raise Problem("forbidden", detail)


def _is_of_another_page(host: str, headers: Headers) -> bool:
    """Whether a browser says that another page sent the request; other clients and typed addresses have no page."""
    origin = headers.get("origin")
    told = origin is not None and origin.partition("://")[2].lower() != host.lower()
    return told or headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    """Whether it is a CORS preflight: a browser asks what a page of another origin may do (Fetch, section 3.3.2)."""
    return scope["method"] == "OPTIONS" and "origin" in headers


def _for_preflight(problem: Problem) -> Problem:
    return Problem(problem.code, _NO_BROWSERS, headers=problem.headers)


async def _always() -> bool:
    return True


def _is_guarded(scope: Scope) -> bool:
    path = scope.get("path", "")
    return scope["type"] == "http" and (path == GUARDED or path.startswith(f"{GUARDED}/"))
