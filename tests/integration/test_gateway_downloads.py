"""Downloads that cannot go on: the client notices, and the gateway's log says why in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import text

from api_gateway.streams import permission
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import DEFAULT_TENANT, artifact_key
from tests.integration.gateway_kit import (
    NOWHERE,
    Gateway,
    bearer,
    gateway_on,
    gateway_process,
    keys_on,
    new_key,
)

ARTIFACT = "art_1"
ACME = "acme"
LONG = 40_000_000
"""Bytes that no socket's buffers hold, so that most of them are read once the client takes the first ones."""

pytestmark = pytest.mark.one_database("sqlite")


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    """An artifact's file, which is long and empty."""
    made = tmp_path / "blobs" / artifact_key("turn", ARTIFACT)
    made.parent.mkdir(parents=True)
    with made.open("wb") as file:
        file.truncate(LONG)
    return made


@pytest.fixture
def gateway(database_url: str, gateway_redis: str, blobs: Path) -> Generator[Gateway]:
    """A gateway with the file's artifact."""
    url = f"file://{blobs.parents[1]}"
    with gateway_on(database_url, gateway_redis, redis_url=NOWHERE, artifact_url=url) as running:
        yield running


def long_batch(gateway: Gateway, key: str | None = None) -> str:
    """The path of the results of a batch whose turns are long, made with the key."""
    headers = {} if key is None else bearer(key)
    items = [{"custom_id": f"t{number}", "params": gateway.defaults} for number in range(10)]
    batch = gateway.http.post("/v1/batches", json={"requests": items}, headers=headers).json()
    listed = gateway.http.get("/v1/turns", params={"batch_id": batch["id"]}, headers=headers).json()["data"]
    for turn in listed:
        gateway.worker.finish(turn["id"], live=False)
        gateway.worker.change(turn["id"], output_text="x" * (LONG // len(items)))
    return str(batch["results_url"])


def long_artifact(gateway: Gateway, key: str | None = None) -> str:
    """The path of the artifact, once it is that of the key's tenant."""
    gateway.worker.artifact(ARTIFACT, LONG, DEFAULT_TENANT if key is None else ACME)
    return f"/v1/artifacts/{ARTIFACT}"


@contextmanager
def begun(url: str, **headers: str) -> Generator[Iterator[bytes]]:
    """A download of which the first bytes were taken, and what follows."""
    with httpx2.stream("GET", url, headers=headers, timeout=30) as answer:
        assert answer.status_code == 200
        rest = answer.iter_raw(1_000)
        next(rest)
        yield rest


def test_results_whose_database_is_lost_are_cut(gateway: Gateway, tmp_path: Path) -> None:
    """The client could not tell the end of a page from the end of the results."""

    def lose() -> None:
        with gateway.worker.engine.begin() as connection:
            connection.execute(text("DROP TABLE tool_calls"))

    check_cut(gateway, tmp_path, long_batch(gateway), lose, "tool_calls")


def halve(file: Path) -> None:
    """Remove the second half of a file."""
    os.truncate(file, LONG // 2)


@pytest.mark.parametrize(
    ("lose", "why"),
    [(Path.unlink, "No such file or directory"), (halve, "are not all there")],
    ids=["removed", "halved"],
)
def test_artifact_whose_bytes_are_lost_is_cut(
    gateway: Gateway, tmp_path: Path, blobs: Path, lose: Callable[[Path], object], why: str
) -> None:
    """What remains cannot be read, though the first bytes could."""
    check_cut(gateway, tmp_path, long_artifact(gateway), partial(lose, blobs), why)


def check_cut(gateway: Gateway, tmp_path: Path, path: str, lose: Callable[[], object], why: str) -> None:
    """Download from a gateway that loses what it reads from: the client notices, and the log has one line of it."""
    log, settings = tmp_path / "log", gateway.settings
    url = str(settings.artifact_url)
    with gateway_process(settings.database_url, NOWHERE, log, HARNESS_ARTIFACT_URL=url) as running:
        with begun(f"{running.url}{path}") as rest:
            lose()
            with pytest.raises(httpx2.RemoteProtocolError):
                list(rest)
        wait_until(lambda: f'"path": "{path}"' in log.read_text(), "the request to be logged")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (cut,) = [line for line in lines if line["level"] in ("warning", "error") and path in line["event"]]
    assert cut["event"].startswith(f"{path} is cut off: ")
    assert why in cut["event"]
    assert [line for line in lines if "exception" in line or "ASGI" in line["event"]] == []


@pytest.mark.parametrize("path_of", [long_batch, long_artifact])
def test_download_is_cut_soon_after_its_key_is_revoked(
    gateway: Gateway,
    path_of: Callable[[Gateway, str], str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It goes on with a key that is still accepted; with another one, the client learns that it lacks a part."""
    monkeypatch.setattr(permission, "ASK_S", 0.0)
    with keys_on(gateway.settings.database_url) as keys:
        key, known = new_key(keys, ACME)
        path = path_of(gateway, key)
        with begun(f"{gateway.url}{path}", **bearer(key)) as rest:
            assert sum(map(len, rest)) >= LONG - 1_000
        with begun(f"{gateway.url}{path}", **bearer(key)) as rest:
            keys.revoke(known.id)
            with pytest.raises(httpx2.RemoteProtocolError):
                list(rest)
    assert f"{path} is cut off: its API key is no longer accepted" in caplog.messages
