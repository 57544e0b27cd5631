"""Artifact bytes in any file system fsspec knows: ``file://DIR`` on one host, ``s3://BUCKET`` on many."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from fsspec import core  # pyright: ignore[reportMissingTypeStubs] - fsspec has no types
from fsspec.implementations.local import LocalFileSystem  # pyright: ignore[reportMissingTypeStubs]

from harness_worker.errors import ConfigError, PermanentError, TransientError
from harness_worker.urls import masked

_KEY: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")

_FILE: Final = "file://"

DIRECTORY_TRIES: Final = 2
"""How many times a directory is created for a file; a process that has just emptied it may remove it again."""


class FsspecBlobs:
    """Implements ``ports.BlobStore`` below one URL; reads nothing outside it.

    Args:
        url: The directory, such as ``file:///var/lib/harness/artifacts``.

    Raises:
        ConfigError: fsspec does not know the URL's protocol, or its package is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            _, root = _opened(url)
        except (ValueError, ImportError) as error:
            raise ConfigError(f"HARNESS_ARTIFACT_URL={masked(url)!r}: {error}") from None
        self._url = url
        self._root = str(root).rstrip("/")

    def put(self, key: str, data: bytes) -> str:
        """Store ``data`` under ``key`` (names of letters, digits, ``_ - .``, separated by ``/``) and return its URL.

        Raises:
            PermanentError: The key could lead out of the store.
            TransientError: The file system did not store it.
        """
        if _KEY.fullmatch(key) is None:
            raise PermanentError(f"not a blob key: {key!r}")
        path = f"{self._root}/{key}"
        try:
            self._write(path, data)
        except Exception as error:
            raise TransientError(f"the artifact store did not take {key!r}: {_why(error)}") from error
        return str(self._fs.unstrip_protocol(path))

    def get(self, url: str) -> bytes:
        """The bytes at a URL that ``put`` returned.

        Raises:
            PermanentError: There is nothing at that URL, or it does not belong to this store.
            TransientError: The file system did not answer.
        """
        path = self._path(url)
        try:
            return bytes(self._fs.cat_file(path))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise PermanentError(f"there is no artifact at {url}") from error
        except Exception as error:
            raise TransientError(f"the artifact store did not give {url}: {_why(error)}") from error

    def delete(self, url: str) -> None:
        """Remove the bytes at a URL that ``put`` returned, if they exist, and the directory if it is then empty.

        Raises:
            PermanentError: The URL does not belong to this store.
            TransientError: The file system did not answer.
        """
        path = self._path(url)
        try:
            self._fs.rm_file(path)
        except FileNotFoundError:
            return
        except Exception as error:
            raise TransientError(f"the artifact store did not remove {url}: {_why(error)}") from error
        self._leave(path.rpartition("/")[0])

    @property
    def _fs(self) -> Any:  # noqa: ANN401 - fsspec has no types
        """The file system of this process, because children cannot use their parent's connections."""
        return _opened(self._url)[0]

    def _write(self, path: str, data: bytes) -> None:
        """Write a file; its directory is created if missing, or again if removed meanwhile. A bucket needs none."""
        for _ in range(DIRECTORY_TRIES):
            try:
                self._fs.pipe_file(path, data)
            except FileNotFoundError:
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            else:
                return
        self._fs.pipe_file(path, data)

    def _leave(self, directory: str) -> None:
        """Remove a directory if it is empty and not the store's own; only stores on disk have directories."""
        if directory != self._root and isinstance(self._fs, LocalFileSystem):
            with suppress(OSError):  # not empty, or already removed
                Path(directory).rmdir()

    def _path(self, url: str) -> str:
        prefix = f"{self._fs.unstrip_protocol(self._root)}/"
        key = url.removeprefix(prefix)
        if key == url or _KEY.fullmatch(key) is None:
            raise PermanentError(f"not an artifact of this store: {url}")
        return f"{self._root}/{key}"


def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, which fsspec caches for each thread, and the path in it."""
    untyped: Any = core
    local: Any = LocalFileSystem
    if url.startswith(_FILE):  # else fsspec takes a path with :: in it for several URLs
        return local(), local._strip_protocol(url)  # noqa: SLF001 - as fsspec itself does
    return untyped.url_to_fs(url)


def _why(error: Exception) -> str:
    """A file system's explanation of its error; those reached over a network raise errors of their own libraries."""
    return getattr(error, "strerror", None) or str(error)
