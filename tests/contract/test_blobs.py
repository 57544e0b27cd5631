"""What every blob store does."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem  # pyright: ignore[reportMissingTypeStubs]

from harness_worker.adapters.blobs.store import FsspecBlobs
from harness_worker.adapters.embedded.ports import LOOPBACK, free_port
from harness_worker.errors import ConfigError, PermanentError, TransientError
from harness_worker.ports import BlobStore
from tests.s3 import S3


@pytest.fixture
def bucket(s3: S3, reach_s3: Callable[[S3], None]) -> str:
    """The URL of an empty bucket."""
    reach_s3(s3)
    return s3.new_bucket()


@pytest.fixture(params=["memory", "file", "relative file", pytest.param("s3", marks=pytest.mark.acceptance)])
def blobs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlobStore:
    """An empty store."""
    monkeypatch.chdir(tmp_path)
    if request.param == "s3":
        return FsspecBlobs(f"{request.getfixturevalue('bucket')}/artifacts")
    urls = {"memory": f"memory://{tmp_path.name}", "file": f"file://{tmp_path}/a b", "relative file": "file://here"}
    return FsspecBlobs(urls[request.param])


def test_blobs_give_back_what_was_put(blobs: BlobStore) -> None:
    """Bytes come back unchanged, even empty ones and under nested keys; a second put replaces the first."""
    for key, data in (("art_1", b"\x00\xff" * 600_000), ("tenant/art_2.txt", b""), ("art_1", b"new")):
        assert blobs.get(blobs.put(key, data)) == data


def test_blobs_urls_hold_for_another_store_of_the_same_place(blobs: BlobStore, tmp_path: Path) -> None:
    """A URL that one process stored can be read by another."""
    url = blobs.put("art_1", b"x")
    root = url.removesuffix("/art_1")
    assert FsspecBlobs(root).get(url) == b"x"
    assert tmp_path


def test_blobs_say_that_there_is_nothing(blobs: BlobStore) -> None:
    """A missing blob is a permanent error that names its URL, and so is a directory, or a file taken for one."""
    url = blobs.put("tenant/art_1", b"x")
    for absent in (f"{url}_missing", url.removesuffix("/art_1"), f"{url}/art_2"):
        with pytest.raises(PermanentError, match="there is no artifact at"):
            blobs.get(absent)


@pytest.mark.parametrize("key", ["", "../up", "/etc/x", "a/../../x", ".hidden", "a//b", "a b", "x\x00"])
def test_blobs_refuse_keys_that_could_lead_out(blobs: BlobStore, key: str) -> None:
    """A key consists of names separated by slashes, and nothing else."""
    with pytest.raises(PermanentError, match="not a blob key"):
        blobs.put(key, b"x")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "memory:///elsewhere/x", "http://127.0.0.1:1/x", "", "art_1"])
def test_blobs_refuse_urls_that_are_not_their_own(blobs: BlobStore, url: str) -> None:
    """A store reads only below its own root."""
    with pytest.raises(PermanentError, match="not an artifact of this store"):
        blobs.get(url)
    with pytest.raises(PermanentError, match="not an artifact of this store"):
        blobs.get(blobs.put("art_1", b"x") + "/../../x")


def test_blobs_that_cannot_be_written_are_worth_another_try(tmp_path: Path) -> None:
    """A file system that refuses is a transient error that says why."""
    (tmp_path / "taken").write_text("a file where the directory should be")
    with pytest.raises(TransientError, match="the artifact store did not take 'art_1': "):
        FsspecBlobs(f"file://{tmp_path}/taken").put("art_1", b"x")


@pytest.mark.parametrize(("url", "why"), [("nope://x", "not known: nope"), ("s3a://bucket/x", "Install s3fs")])
def test_blobs_of_an_unusable_url_are_a_configuration_error(
    url: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For an unknown protocol or a missing package, the message names the setting and what is missing."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigError, match=rf"^HARNESS_ARTIFACT_URL=.*{why}"):
        FsspecBlobs(url)


def test_blobs_of_an_unusable_url_show_no_password() -> None:
    """The message shows the URL without it."""
    with pytest.raises(ConfigError, match=r"^HARNESS_ARTIFACT_URL='nope://bob:\*\*\*@host/dir': "):
        FsspecBlobs("nope://bob:s3cret@host/dir")


@pytest.mark.acceptance
def test_blobs_of_a_bucket_are_shared_with_children(bucket: str) -> None:
    """A forked process opens its own connections, although its parent had some."""
    blobs = FsspecBlobs(bucket)
    url = blobs.put("art_1", b"from the parent")
    child = multiprocessing.get_context("fork").Process(target=lambda: blobs.put("art_2", blobs.get(url)))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert blobs.get(f"{bucket}/art_2") == b"from the parent"


@pytest.mark.acceptance
def test_blobs_of_a_bucket_that_does_not_answer_are_worth_another_try(reach_s3: Callable[[S3], None]) -> None:
    """Errors of the client library become transient errors, too."""
    reach_s3(S3(url=f"http://{LOOPBACK}:{free_port()}"))
    blobs = FsspecBlobs("s3://bucket")
    with pytest.raises(TransientError, match="the artifact store did not take 'art_1': Could not connect"):
        blobs.put("art_1", b"x")
    with pytest.raises(TransientError, match="the artifact store did not give "):
        blobs.get("s3://bucket/art_1")
    with pytest.raises(TransientError, match="the artifact store did not remove "):
        blobs.delete("s3://bucket/art_1")


def test_blobs_delete_what_was_put(blobs: BlobStore) -> None:
    """What is deleted is gone, deleting it again is no error, and nothing outside the store is touched."""
    url, other = blobs.put("turn/art_1", b"x"), blobs.put("turn/art_2", b"y")
    blobs.delete(url)
    blobs.delete(url)
    with pytest.raises(PermanentError, match="there is no artifact at"):
        blobs.get(url)
    assert blobs.get(other) == b"y"
    with pytest.raises(PermanentError, match="not an artifact of this store"):
        blobs.delete("file:///etc/passwd")


def test_blobs_leave_no_empty_directory(tmp_path: Path) -> None:
    """A turn's directory is removed with its last file, and made again when needed; the store's own stays."""
    root = tmp_path / "artifacts"
    blobs = FsspecBlobs(f"file://{root}")
    urls = [blobs.put("turn/art_1", b"x"), blobs.put("turn/art_2", b"y"), blobs.put("art_3", b"z")]
    blobs.delete(urls[0])
    assert [path.name for path in root.iterdir() if path.is_dir()] == ["turn"]
    for url in urls[1:]:
        blobs.delete(url)
    assert list(root.iterdir()) == []
    blobs.delete(urls[1])
    assert blobs.get(blobs.put("turn/art_4", b"w")) == b"w"


_Disk: Any = LocalFileSystem


class Swept(_Disk):
    """A disk on which another process removes the first directory that is made, while it is still empty."""

    protocol = "swept"
    sweeps = True

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make the directories, then lose the last one."""
        Path(path).mkdir(parents=True, exist_ok=exist_ok)
        if self.sweeps:
            self.sweeps = False
            Path(path).rmdir()


def test_blobs_are_put_although_their_directory_is_removed_meanwhile(tmp_path: Path) -> None:
    """A process that deletes a turn's last file may be faster than the one that puts the next."""
    register: Any = importlib.import_module("fsspec.registry")
    register.register_implementation("swept", Swept, clobber=True)
    blobs = FsspecBlobs(f"swept://{tmp_path}/artifacts")
    assert blobs.get(blobs.put("turn/art_1", b"x")) == b"x"
