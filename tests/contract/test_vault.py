"""What a vault makes of the files in its directory."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness_worker.adapters.vault import directory
from harness_worker.adapters.vault.directory import MAX_FILE_BYTES, DirectoryVault
from harness_worker.bootstrap.retrieval import make_retriever
from harness_worker.errors import ConfigError, TransientError
from harness_worker.ports import DeadlineReached, Retriever, TextIndex


class Counting:
    """A retriever that counts how often it makes an index."""

    def __init__(self) -> None:
        self._inner: Retriever = make_retriever()
        self.indexed = 0

    def index(self, texts: Sequence[str]) -> TextIndex:
        """See ``ports.Retriever.index``."""
        self.indexed += 1
        return self._inner.index(texts)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with a few documents."""
    root = tmp_path / "vault"
    (root / "deep").mkdir(parents=True)
    (root / "refunds.md").write_text("# Refunds\n\nMoney comes back within 30 days.\n")
    (root / "deep" / "notes.txt").write_text("The warehouse closes at noon.")
    (root / "preferences.md").write_text("# House style\n- Answer in British English\n- Be brief about the warehouse\n")
    return root


def found(vault: DirectoryVault, query: str) -> list[str]:
    """The ids of the passages found."""
    return [passage.id for passage in vault.pack(query, 10).documents]


def test_vault_finds_passages_with_their_titles(root: Path) -> None:
    """They are found by words or headings, best first; the vault's preferences come with every result."""
    pack = DirectoryVault(str(root), make_retriever()).pack("refunding money", 4)
    (passage,) = pack.documents
    assert (passage.id, passage.title, passage.source) == ("refunds.md#1", "Refunds", "refunds.md")
    assert pack.preferences == ("Answer in British English", "Be brief about the warehouse")


def test_vault_reads_every_document_below_it(root: Path) -> None:
    """It reads Markdown and text at any depth; the file of preferences is not a document."""
    assert found(DirectoryVault(str(root), make_retriever()), "warehouse") == ["deep/notes.txt#1"]


def test_vault_leaves_out_files_whose_names_are_not_text(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others are read, with U+0000 replaced by U+FFFD; the log says what was left out."""
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.md")).write_text("The warehouse is closed.")
    (root / "odd.md").write_text("Zero \x00 tolerance.")
    vault = DirectoryVault(str(root), make_retriever())
    assert found(vault, "warehouse") == ["deep/notes.txt#1"]
    assert [passage.text for passage in vault.pack("tolerance", 1).documents] == ["Zero \ufffd tolerance."]
    assert "left out: its name is not UTF-8" in caplog.text


def test_vault_is_read_once_and_again_when_files_change(root: Path) -> None:
    """The next search sees files that were written, added or removed; otherwise nothing is read again."""
    counting = Counting()
    vault = DirectoryVault(str(root), counting)
    assert counting.indexed == 0
    assert [found(vault, "warehouse"), found(vault, "money")] == [["deep/notes.txt#1"], ["refunds.md#1"]]
    assert counting.indexed == 1
    (root / "new.md").write_text("A second warehouse opens.")
    assert sorted(found(vault, "warehouse")) == ["deep/notes.txt#1", "new.md#1"]
    (root / "new.md").write_text("A second warehouse never opened, and is forgotten by everybody here.")
    assert found(vault, "forgotten") == ["new.md#1"]
    (root / "new.md").unlink()
    assert found(vault, "warehouse") == ["deep/notes.txt#1"]
    assert counting.indexed == 4


def test_vault_sees_a_file_replaced_by_one_of_its_size_and_time(root: Path) -> None:
    """A copy may keep the time; and a file that could not be read is read once its permissions are mended."""
    vault, file = DirectoryVault(str(root), make_retriever()), root / "refunds.md"
    assert found(vault, "money") == ["refunds.md#1"]
    before = file.stat()
    file.write_text(file.read_text().replace("Money", "Goods"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (found(vault, "money"), found(vault, "goods")) == ([], ["refunds.md#1"])


def test_vault_leaves_out_what_is_no_document(root: Path, tmp_path: Path) -> None:
    """These are hidden files, other types, pipes, links that lead outside or nowhere, and files that are too large."""
    (tmp_path / "secret.md").write_text("warehouse secret")
    (root / ".git").mkdir()
    (root / ".git" / "x.md").write_text("warehouse")
    (root / ".hidden.md").write_text("warehouse")
    (root / "data.csv").write_text("warehouse")
    (root / "out.md").symlink_to(tmp_path / "secret.md")
    (root / "nowhere.md").symlink_to(tmp_path / "nothing.md")
    os.mkfifo(root / "pipe.md")  # whoever opens it to read waits for one who writes
    (root / "large.md").write_text("warehouse " * (MAX_FILE_BYTES // 10 + 1))
    (root / "alias.md").symlink_to(root / "refunds.md")
    vault = DirectoryVault(str(root), make_retriever())
    assert found(vault, "warehouse") == ["deep/notes.txt#1"]
    assert sorted(found(vault, "money")) == ["alias.md#1", "refunds.md#1"]


def test_vault_reads_what_is_not_quite_utf_8(root: Path) -> None:
    """An invalid byte becomes a replacement character; an empty file has no passages."""
    (root / "latin.txt").write_bytes(b"caf\xe9 opens at nine")
    (root / "empty.md").write_text("")
    assert found(DirectoryVault(str(root), make_retriever()), "opens") == ["latin.txt#1"]


def test_empty_vault_finds_nothing(tmp_path: Path) -> None:
    """A directory without documents is a valid vault."""
    pack = DirectoryVault(str(tmp_path), make_retriever()).pack("anything", 4)
    assert (pack.preferences, pack.documents) == ((), ())


def test_vault_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    """The message names the directory as given, and where it was looked for."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"vault '.*/missing': No such file or directory"):
        DirectoryVault(str(tmp_path / "missing"), make_retriever())
    with pytest.raises(ConfigError, match="Not a directory"):
        DirectoryVault(str(tmp_path / "file"), make_retriever())


def test_vault_that_goes_away_is_worth_another_try(root: Path, tmp_path: Path) -> None:
    """The error is transient, because the directory may be mounted again."""
    vault = DirectoryVault(str(root), make_retriever())
    assert found(vault, "money")
    root.rename(tmp_path / "moved")
    with pytest.raises(TransientError, match="cannot be read"):
        vault.pack("money", 4)
    (tmp_path / "moved").rename(root)
    assert found(vault, "money")


@pytest.fixture(params=["file", "directory"])
def deep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Errors of the system that meet whoever opens the file, or the directory, ``deep``; each is met once."""
    owner, name = {"file": (Path, "read_text"), "directory": (os, "scandir")}[request.param]
    errors, opened = list[int](), getattr(owner, name)

    def failing(path: Path | str, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the real one
        if errors and "deep" in str(path):
            number = errors.pop()
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, *args, **options)

    monkeypatch.setattr(owner, name, failing)
    return errors


def test_document_that_cannot_be_read_for_a_moment_is_not_forgotten(root: Path, deep: list[int]) -> None:
    """A lack of descriptors ends without a change of the file that would have it read again."""
    vault = DirectoryVault(str(root), make_retriever())
    deep.append(errno.EMFILE)
    with pytest.raises(TransientError, match=r"cannot be read: .*Too many open files"):
        vault.pack("warehouse", 4)
    assert found(vault, "warehouse") == ["deep/notes.txt#1"]


def test_document_that_may_not_be_read_is_left_out(
    root: Path, deep: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """The others are read, and the log names it."""
    vault = DirectoryVault(str(root), make_retriever())
    deep.append(errno.EACCES)
    assert found(vault, "warehouse money") == ["refunds.md#1"]
    assert "left out: Permission denied" in caplog.text


def test_vault_is_read_by_one_thread_for_all(root: Path) -> None:
    """Turns that come at the same moment share one reading."""
    counting, seen = Counting(), list[list[str]]()
    vault = DirectoryVault(str(root), counting)
    threads = [threading.Thread(target=lambda: seen.append(found(vault, "money"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (seen, counting.indexed) == ([["refunds.md#1"]] * 8, 1)


def test_search_that_is_stopped_as_it_begins_hinders_no_later_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call's time may be over at any moment, even the one in which it has got the vault's lock."""
    vault = DirectoryVault(str(root), make_retriever())
    lock: threading.Lock = vars(vault)["_lock"]

    class Stopping:
        def acquire(self, timeout: float) -> bool:
            assert lock.acquire(timeout=timeout)
            raise DeadlineReached

        def release(self) -> None:
            lock.release()

    with monkeypatch.context() as patch:
        patch.setattr(vault, "_lock", Stopping())
        with pytest.raises(DeadlineReached):
            found(vault, "money")
    monkeypatch.setattr(directory, "INDEXING_S", 0.1)
    assert found(vault, "money") == ["refunds.md#1"]


def test_relative_vault_is_taken_from_the_working_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the working directory when the process starts."""
    monkeypatch.chdir(root.parent)
    vault = DirectoryVault("vault", make_retriever())
    monkeypatch.chdir(os.sep)
    assert found(vault, "money") == ["refunds.md#1"]
