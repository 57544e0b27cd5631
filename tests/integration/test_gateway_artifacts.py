"""Artifacts over HTTP, whole and in parts, and what is answered if one is missing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import update

from api_gateway import artifacts as gateway_artifacts
from api_gateway.artifacts import ArtifactFiles
from api_gateway.requests.ranges import Span, Unsatisfiable, span_of
from harness_worker.adapters.blobs.store import FsspecBlobs
from harness_worker.adapters.embedded.ports import LOOPBACK, free_port
from harness_worker.schema import artifacts, db_now
from harness_worker.wire import artifact_key
from tests.integration.gateway_kit import NOWHERE, Gateway, gateway_on, gateway_process, problem_of
from tests.s3 import S3

DATA = "0123456789ä" * 200_000
SIZE = len(DATA.encode())
ID = "art_1"


@pytest.fixture
def gateway(database_url: str, gateway_redis: str, tmp_path: Path) -> Generator[Gateway]:
    """A gateway on each kind of database, with a file store in which there is one artifact."""
    url = f"file://{tmp_path}/blobs"
    FsspecBlobs(url).put(artifact_key("turn", ID), DATA.encode())
    with gateway_on(database_url, gateway_redis, redis_url=NOWHERE, artifact_url=url) as running:
        running.worker.artifact(ID, SIZE)
        yield running


def got(gateway: Gateway, **headers: str) -> httpx2.Response:
    """The response to a request for the artifact."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return gateway.http.get(f"/v1/artifacts/{ID}", headers=named)


def test_artifact_is_given_as_the_tool_gave_it(gateway: Gateway) -> None:
    """All bytes come as UTF-8 text that no browser interprets; HEAD gives the size."""
    whole = got(gateway)
    assert (whole.status_code, whole.text == DATA) == (200, True)
    told = ("content-type", "accept-ranges", "x-content-type-options", "content-length")
    size = str(len(DATA.encode()))
    assert [whole.headers[name] for name in told] == ["text/plain; charset=utf-8", "bytes", "nosniff", size]
    assert gateway.http.head(f"/v1/artifacts/{ID}").headers["content-length"] == size


@pytest.mark.parametrize(
    ("asked", "start", "stop"), [("bytes=0-9", 0, 10), ("bytes=2000000-", 2_000_000, None), ("bytes=-5", -5, None)]
)
def test_artifact_is_given_in_parts(gateway: Gateway, asked: str, start: int, stop: int | None) -> None:
    """A range is answered 206 with exactly its bytes."""
    part, data = got(gateway, Range=asked), DATA.encode()
    assert (part.status_code, part.content == data[start:stop]) == (206, True)
    first = start if start >= 0 else len(data) + start
    assert part.headers["content-range"] == f"bytes {first}-{first + len(part.content) - 1}/{len(data)}"


def test_artifact_ranges_that_cannot_be_are_told(gateway: Gateway) -> None:
    """A range past the end is 416 with the size; an invalid one, or one of another version, is ignored."""
    refused = got(gateway, Range="bytes=99999999-")
    problem_of(refused, 416, "range_not_satisfiable")
    assert refused.headers["content-range"] == f"bytes */{len(DATA.encode())}"
    assert got(gateway, Range="lines=1-2").status_code == 200
    etag = got(gateway).headers["etag"]
    assert got(gateway, Range="bytes=0-1", If_Range=etag).status_code == 206
    assert got(gateway, Range="bytes=0-1", If_Range='"other"').status_code == 200


@pytest.mark.parametrize("named", ["{}", "W/{}", '"other", {}', "*"])
def test_artifact_that_the_client_has_is_not_sent_again(gateway: Gateway, named: str) -> None:
    """If the ETag matches, the answer is 304, whatever range is asked for."""
    etag = got(gateway).headers["etag"]
    unchanged = got(gateway, If_None_Match=named.format(etag), Range="bytes=0-9")
    assert (unchanged.status_code, unchanged.headers["etag"], unchanged.content) == (304, etag, b"")
    assert got(gateway, If_None_Match='"other"').status_code == 200


def test_artifact_head_is_of_the_whole(gateway: Gateway) -> None:
    """HEAD ignores ranges, which are for GET alone."""
    told = gateway.http.head(f"/v1/artifacts/{ID}", headers={"Range": "bytes=0-9"})
    assert (told.status_code, told.headers["content-length"]) == (200, str(len(DATA.encode())))


@pytest.mark.one_database("sqlite")
def test_artifact_head_reads_no_more_than_whether_it_is_there(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HEAD tells of bytes that are gone, as GET does, and reads but one of those that are there."""
    read: list[int] = []
    real = ArtifactFiles.read

    async def counted(files: ArtifactFiles, key: str, start: int, stop: int) -> bytes:
        read.append(stop - start)
        return await real(files, key, start, stop)

    monkeypatch.setattr(ArtifactFiles, "read", counted)
    assert gateway.http.head(f"/v1/artifacts/{ID}").status_code == 200
    assert read == [1]
    gateway.worker.artifact("art_lost", SIZE)
    assert gateway.http.head("/v1/artifacts/art_lost").status_code == 404


def test_artifact_that_is_not_there_is_404(gateway: Gateway) -> None:
    """That is one never stored, another tenant's, one whose bytes are gone, or one that has expired."""
    gateway.worker.artifact("art_theirs", SIZE, tenant="other")
    gateway.worker.artifact("art_lost", SIZE)
    for artifact_id in ("art_none", "art_theirs", "art_lost", "%00", "a" * 5_000, "..%2f..%2fetc%2fpasswd"):
        problem_of(gateway.http.get(f"/v1/artifacts/{artifact_id}"), 404, "not_found")
    with gateway.worker.engine.begin() as connection:
        connection.execute(update(artifacts).where(artifacts.c.id == ID).values(expires_at=db_now() - 1))
    problem_of(got(gateway), 404, "not_found")


@pytest.mark.one_database("sqlite")
def test_artifact_that_lacks_bytes_is_not_begun(gateway: Gateway) -> None:
    """A file that is shorter than its row says would end in the middle of an answer that promised more."""
    FsspecBlobs(gateway.settings.artifact_url or "").put(artifact_key("turn", "art_cut"), DATA[:9].encode())
    gateway.worker.artifact("art_cut", SIZE)
    problem_of(gateway.http.get("/v1/artifacts/art_cut"), 503, "not_ready")


def test_artifact_of_an_unknown_store_says_which_setting_is_missing(sqlite_url: str, gateway_redis: str) -> None:
    """A gateway without the setting for the store does not claim that there are no artifacts."""
    with gateway_on(sqlite_url, gateway_redis, redis_url=NOWHERE) as gateway:
        gateway.worker.artifact(ID, SIZE)
        assert "HARNESS_ARTIFACT_URL" in problem_of(got(gateway), 503, "not_ready")["detail"]


@pytest.mark.acceptance
def test_artifact_of_a_store_that_does_not_answer_is_worth_another_try(
    sqlite_url: str, gateway_redis: str, reach_s3: Callable[[S3], None]
) -> None:
    """Errors of the library that accesses S3 are reported as errors of the store."""
    reach_s3(S3(url=f"http://{LOOPBACK}:{free_port()}"))
    with gateway_on(sqlite_url, gateway_redis, redis_url=NOWHERE, artifact_url="s3://bucket") as gateway:
        gateway.worker.artifact(ID, SIZE)
        assert "does not answer" in problem_of(got(gateway), 503, "not_ready")["detail"]


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A file of the artifact that hangs whoever opens it to read, until somebody opens it to write."""
    made = tmp_path / artifact_key("turn", ID)
    made.parent.mkdir(parents=True)
    os.mkfifo(made)
    return made


def test_artifact_store_that_hangs_holds_up_nothing_else(
    sqlite_url: str, gateway_redis: str, pipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reader gets an answer in time; long request bodies, which also need threads, are read meanwhile."""
    monkeypatch.setattr(gateway_artifacts, "READ_TIMEOUT_S", 1.0)
    settings = {"artifact_url": f"file://{tmp_path}"}
    with (
        gateway_on(sqlite_url, gateway_redis, redis_url=NOWHERE, **settings) as gateway,
        ThreadPoolExecutor(40) as clients,
    ):
        gateway.worker.artifact(ID, SIZE)
        readers = [clients.submit(got, gateway) for _ in range(40)]
        gateway.posted(input="x" * 200_000)
        assert all("does not answer" in problem_of(each.result(), 503, "not_ready")["detail"] for each in readers)
        os.close(os.open(pipe, os.O_RDWR))  # lets those go that still wait


@pytest.mark.usefixtures("pipe")
def test_artifact_store_that_hangs_does_not_keep_the_process(
    sqlite_url: str, gateway_redis: str, tmp_path: Path
) -> None:
    """SIGTERM ends the gateway although a thread of it still waits for the store."""
    place = {"HARNESS_ARTIFACT_URL": f"file://{tmp_path}"}
    with gateway_on(sqlite_url, gateway_redis, redis_url=NOWHERE) as gateway:
        gateway.worker.artifact(ID, SIZE)
    with gateway_process(sqlite_url, NOWHERE, tmp_path / "log", grace_s=2, **place) as running:
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.get(f"{running.url}/v1/artifacts/{ID}", timeout=3)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 0


@pytest.mark.parametrize(
    ("header", "size", "span"),
    [
        (None, 9, None),
        ("bytes=-", 9, None),
        ("bytes=5-4", 9, None),
        ("bytes=0-1,3-4", 9, None),
        ("bytes=" + "9" * 99 + "-", 9, None),
        ("Bytes = 8 - 99", 9, (8, 9)),
        ("bytes=-99", 9, (0, 9)),
        ("bytes=0-0", 9, (0, 1)),
    ],
)
def test_span_of_reads_one_range(header: str | None, size: int, span: tuple[int, int] | None) -> None:
    """An invalid range is ignored, and one that reaches past the end is cut."""
    assert span_of(header, size) == (span and Span(start=span[0], stop=span[1]))


@pytest.mark.parametrize(("header", "size"), [("bytes=9-", 9), ("bytes=-0", 9), ("bytes=0-", 0), ("bytes=-3", 0)])
def test_span_of_nothing_is_unsatisfiable(header: str, size: int) -> None:
    """No range of an empty artifact can be given."""
    with pytest.raises(Unsatisfiable):
        span_of(header, size)
