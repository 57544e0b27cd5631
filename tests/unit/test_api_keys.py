"""API keys: what is one, who may be called what, and whom the guard lets in."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import Any, Final

import pytest
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from api_gateway.database import create_engine
from api_gateway.middleware.guard import Guard
from api_gateway.middleware.keys import Keys, key_in, refused_key
from api_gateway.problems import Problem
from harness_worker.core.api_keys import ApiKey, KeyState, checked_name
from harness_worker.credentials import KEY_PREFIX, key_digest
from harness_worker.entrypoints.view.key_table import key_table
from harness_worker.errors import ConfigError
from harness_worker.wire import DEFAULT_TENANT

KEY: Final = KEY_PREFIX + secrets.token_urlsafe(32)
OTHER: Final = KEY_PREFIX + secrets.token_urlsafe(32)
HERE: Final = ("127.0.0.1", 5)
THERE: Final = ("10.0.0.7", 5)
LASTING: Final = ApiKey(id="5d1c", tenant="acme", name="billing", created_at=1.0, expires_at=None, revoked_at=None)


def test_digest_is_of_keys_alone() -> None:
    """What is kept is the SHA-256 of the whole key; what cannot be one has none, however long it is."""
    digest = key_digest(KEY)
    assert digest is not None
    assert (len(digest), digest == key_digest(OTHER), KEY[3:] in digest) == (64, False, False)
    wrong = (
        "",
        "hk_",
        KEY[3:],
        KEY[:-1],
        KEY + "x",
        f"{KEY}\n",
        f"{KEY} ",
        KEY.upper()[:3] + KEY[3:],
        "hk_" + "ü" * 43,
    )
    assert [key_digest(each) for each in (*wrong, "hk_" + "x" * 1_000_000)] == [None] * 10


@pytest.mark.parametrize("name", ["a", "acme", "Ünited ☃ Ltd.", "a:b/{c}%", "x" * 255, "default"])
def test_name_may_be_anything_that_can_be_seen(name: str) -> None:
    """It is escaped where it is a part of something else."""
    assert checked_name(name, "--tenant") == name


@pytest.mark.parametrize("name", ["", " ", " a", "a ", "a\n", "a\0b", "a\x1b[31mb", "a\u202eb", "\u00a0a", "x" * 256])
def test_name_that_nobody_can_tell_from_another_is_refused(name: str) -> None:
    """With the option, and what is right."""
    with pytest.raises(ConfigError, match=r"^--tenant .*: give 1 to 255 visible characters"):
        checked_name(name, "--tenant")


def test_state_is_told_at_a_time() -> None:
    """A key expires by itself; one that is revoked stays so, whether it has expired or not."""
    short = replace(LASTING, expires_at=9.0)
    assert [short.state_at(now) for now in (8.9, 9.0)] == [KeyState.ACTIVE, KeyState.EXPIRED]
    assert LASTING.state_at(1e12) is KeyState.ACTIVE
    assert replace(short, revoked_at=2.0).state_at(10.0) is KeyState.REVOKED


def test_table_cuts_what_is_long_and_draws_nothing_else() -> None:
    """A line a key, whose columns begin below each other."""
    long = replace(LASTING, tenant="t" * 200, name="☃" * 200, expires_at=86_400.0)
    head, *rows = (line.plain for line in key_table([(LASTING, KeyState.ACTIVE), (long, KeyState.EXPIRED)]))
    assert head.split() == ["key", "state", "created", "expires", "tenant", "name"]
    assert rows[0].split() == ["5d1c", "active", "1970-01-01", "never", "acme", "billing"]
    assert rows[1].split()[:5] == ["5d1c", "expired", "1970-01-01", "1970-01-02", "t" * 31 + "…"]
    assert all(row.index("5d1c") == head.index("key") for row in rows)


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER   {}", "Bearer\t{}", "  Bearer {}  "])
def test_key_is_found_in_a_bearer_token(form: str) -> None:
    """The scheme's case does not matter, nor does white space around the key."""
    assert key_in([form.format(KEY)]) == KEY


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        ["Bearer sk-made-up"],
        ["Basic dTpw"],
        ["Bearer \xff\xfe"],
        ["a", "b"],
        ["x" * 99_999],
    ],
)
def test_what_holds_no_key_is_none(given: list[str]) -> None:
    """OpenAI's clients cannot but send something."""
    assert key_in(given) is None


@pytest.mark.parametrize(
    "given",
    [
        [KEY],
        [f"Token {KEY}"],
        [f"Bearer {KEY}", f"Bearer {KEY}"],
        ["Bearer sk-x", f"Bearer {KEY}"],
        [f"Bearer {KEY}", ""],
        [f"Token Bearer {KEY}"],
        [f"Token,{KEY}"],
    ],
)
def test_key_that_is_sent_wrongly_is_refused(given: list[str]) -> None:
    """Whoever has one is never taken for somebody without, nor for one of two."""
    with pytest.raises(Problem) as refused:
        key_in(given)
    assert (refused.value.status, refused.value.detail) == (401, refused_key().detail)


class Known(Keys):
    """One key, of ``acme``; no database."""

    def __init__(self) -> None:
        super().__init__(create_engine("sqlite:////nowhere/at/all.db"))

    async def tenant_of(self, key: str) -> str:
        """Whose it is."""
        if key != KEY:
            raise refused_key()
        return "acme"


def asked(*, keyless: bool, client: tuple[str, int] | None, path: str = "/v1/turns", **headers: str) -> int | str:
    """The status of the guard's answer, or the tenant of the request that it let in."""
    seen: list[Any] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope.get("state", {}).get("tenant", "nobody"))

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        seen.append(message.get("status"))

    raw = Headers({name.replace("_", "-"): value for name, value in headers.items()}).raw
    scope = {"type": "http", "method": "POST", "path": path, "client": client, "headers": raw}
    asyncio.run(Guard(app, keys=Known(), keyless=keyless)(scope, receive, send))
    return seen[0]


GOOD: Final = f"Bearer {KEY}"
BAD: Final = f"Bearer {OTHER}"


@pytest.mark.parametrize("client", [HERE, THERE, None])
@pytest.mark.parametrize("keyless", [True, False])
def test_key_decides_wherever_it_comes_from(keyless: bool, client: tuple[str, int] | None) -> None:
    """A good one is its tenant's, by any name and from any page; a bad one is refused on a development machine too."""
    page = {"host": "gateway.example", "origin": "https://evil.example"}
    assert asked(keyless=keyless, client=client, authorization=GOOD, **page) == "acme"
    assert asked(keyless=keyless, client=client, authorization=BAD) == 401
    assert asked(keyless=keyless, client=client, authorization=KEY) == 401


@pytest.mark.parametrize(
    ("keyless", "client", "headers", "answer"),
    [
        (True, HERE, {}, DEFAULT_TENANT),
        (True, None, {}, DEFAULT_TENANT),
        (True, HERE, {"authorization": "Bearer made-up", "host": "localhost:1"}, DEFAULT_TENANT),
        (True, THERE, {}, 401),
        (True, THERE, {"authorization": "Bearer made-up", "host": "localhost"}, 401),
        (True, HERE, {"host": "evil.example"}, 403),
        (True, HERE, {"origin": "https://evil.example"}, 403),
        (False, HERE, {}, 401),
        (False, HERE, {"authorization": "Bearer made-up"}, 401),
        (False, None, {}, 401),
    ],
)
def test_without_a_key_this_machine_alone_is_served(
    keyless: bool, client: tuple[str, int] | None, headers: dict[str, str], answer: int | str
) -> None:
    """As the default tenant, and only if it was asked for."""
    assert asked(keyless=keyless, client=client, **headers) == answer


@pytest.mark.parametrize("header", ["webhook_id", "webhook_signature"])
def test_webhook_is_not_this_machines_user(header: str) -> None:
    """It comes from here, and a tenant said where it goes: without a key it would act for the default tenant."""
    given = {header: "x", "host": "127.0.0.1:8000"}
    assert asked(keyless=True, client=HERE, **given) == 403
    assert asked(keyless=True, client=HERE, authorization=GOOD, **given) == "acme"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/v1x"])
def test_guard_minds_the_api_alone(path: str) -> None:
    """The rest answers everybody, and is nobody's."""
    assert asked(keyless=False, client=THERE, path=path, authorization=BAD) == "nobody"
