"""``ports.Vault`` over a directory of Markdown and text files."""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness_worker.core.sources.context_pack import ContextPack, Passage
from harness_worker.core.sources.passages import listed, passages_of
from harness_worker.core.text import UNSTORABLE, clean_text
from harness_worker.errors import ConfigError, TransientError
from harness_worker.ports import Retriever, TextIndex

log = logging.getLogger(__name__)

SUFFIXES: Final = frozenset({".md", ".markdown", ".txt"})
PREFERENCES: Final = "preferences.md"
"""The file at the top level whose lines accompany everything that is found; it is not a document itself."""

MAX_FILE_BYTES: Final = 2_000_000
INDEXING_S: Final = 10.0
"""How long to wait for another thread that reads the directory."""

_LEFT_OUT: Final = (FileNotFoundError, NotADirectoryError, PermissionError)
"""Errors that leave out a file or subdirectory: only a change of it, which is noticed, makes it readable. Any other may
pass by itself, such as a lack of descriptors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file as listed by its directory; it compares equal until somebody writes to it, or lets it be read.

    ``changed_ns`` is the time that nobody can set: a copy may keep that of the last write.
    """

    path: str
    size_bytes: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shelf:
    """The contents of the directory as they were last read."""

    files: tuple[_File, ...]
    preferences: tuple[str, ...]
    passages: tuple[Passage, ...]
    index: TextIndex


class DirectoryVault:
    """Reads the directory when first asked, and again once a file was added, removed or changed.

    Left out are hidden files, links that lead out of it, files above 2 MB, files that may not be read and files whose
    names are not UTF-8.

    Args:
        directory: The directory of the documents.
        retriever: Finds passages.

    Raises:
        ConfigError: There is no such directory, or it may not be read.
    """

    def __init__(self, directory: str, retriever: Retriever) -> None:
        self._root = Path(directory).resolve()
        self._retriever = retriever
        self._lock = threading.RLock()  # which none but its holder can release
        self._shelf: _Shelf | None = None
        try:
            os.listdir(self._root)
        except OSError as error:
            raise ConfigError(f"vault {directory!r}: {error.strerror}: {self._root}") from None

    def pack(self, query: str, limit: int) -> ContextPack:
        """The passages that fit a query, best first, at most ``limit``, and the preferences.

        Raises:
            TransientError: The directory, or something in it, cannot be read now, or reading it takes too long.
        """
        shelf = self._current()
        found = shelf.index.search(query, limit)
        return ContextPack(
            preferences=shelf.preferences, documents=tuple(shelf.passages[match.position] for match in found)
        )

    def _current(self) -> _Shelf:
        """The directory's current contents; an error at any line leaves them readable for other threads."""
        try:
            return self._read_alone()
        except BaseException:
            with suppress(RuntimeError):  # it is not held
                self._lock.release()
            raise

    def _read_alone(self) -> _Shelf:
        """The directory's current contents; other threads wait while one reads."""
        if not self._lock.acquire(timeout=INDEXING_S):
            raise TransientError(f"the vault {self._root} is still being read")
        files = tuple(sorted(self._files(), key=lambda file: file.path))
        shelf = self._shelf
        if shelf is None or shelf.files != files:
            shelf = self._shelf = self._read(files)
        self._lock.release()
        return shelf

    def _read(self, files: tuple[_File, ...]) -> _Shelf:
        texts = {file.path: text for file in files if (text := self._text(file)) is not None}
        preferences = texts.pop(PREFERENCES, "")
        passages = tuple(passage for path, text in texts.items() for passage in passages_of(path, text))
        index = self._retriever.index([f"{passage.title}\n{passage.text}" for passage in passages])
        return _Shelf(files=files, preferences=listed(preferences), passages=passages, index=index)

    def _text(self, file: _File) -> str | None:
        if UNSTORABLE.search(file.path) is not None:
            log.warning("vault %s: %a left out: its name is not UTF-8", self._root, file.path)
            return None
        try:
            return clean_text((self._root / file.path).read_text(encoding="utf-8", errors="replace"))
        except _LEFT_OUT as error:
            log.warning("vault %s: %s left out: %s", self._root, file.path, error.strerror)
            return None
        except OSError as error:
            raise self._unreadable(error) from error

    def _files(self) -> Iterator[_File]:
        for directory, subdirectories, names in os.walk(self._root, onerror=self._lost):
            subdirectories[:] = [name for name in subdirectories if not name.startswith(".")]
            for name in names:
                if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                    yield from self._file(Path(directory, name))

    def _file(self, path: Path) -> Iterator[_File]:
        try:
            found = path.stat()
        except OSError:  # just removed, or a broken link
            return
        if not stat.S_ISREG(found.st_mode):  # reading a pipe would wait for its writer
            return
        is_inside = not path.is_symlink() or path.resolve().is_relative_to(self._root)
        if is_inside and found.st_size <= MAX_FILE_BYTES:
            yield _File(
                path=path.relative_to(self._root).as_posix(), size_bytes=found.st_size, changed_ns=found.st_ctime_ns
            )

    def _lost(self, error: OSError) -> None:
        if Path(error.filename) == self._root or not isinstance(error, _LEFT_OUT):
            raise self._unreadable(error) from error
        log.warning("vault %s: %s left out: %s", self._root, error.filename, error.strerror)

    def _unreadable(self, error: OSError) -> TransientError:
        return TransientError(f"the vault {self._root} cannot be read: {error}")
