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

DIRECTORY_TRIES: Final = 2
"""How often a directory is made for a file: one that somebody else has just emptied is removed."""


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
            TransientError: The file system did not take it.
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
            PermanentError: There is nothing at that URL, or it is not of this store.
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
        """Remove the bytes at a URL that ``put`` returned, if they are there, and the directory that they leave empty.

        Raises:
            PermanentError: It is not a URL of this store.
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
        """The file system of this process: the connections of a parent are of no use to its children."""
        return _opened(self._url)[0]

    def _write(self, path: str, data: bytes) -> None:
        """A directory is made when it is found to be missing, again if it is left meanwhile; a bucket needs none."""
        for _ in range(DIRECTORY_TRIES):
            try:
                self._fs.pipe_file(path, data)
            except FileNotFoundError:
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            else:
                return
        self._fs.pipe_file(path, data)

    def _leave(self, directory: str) -> None:
        """Remove a directory that is empty, but for the store's own; elsewhere than on disk there are none."""
        if directory != self._root and isinstance(self._fs, LocalFileSystem):
            with suppress(OSError):  # it has other bytes in it, or somebody else was quicker
                Path(directory).rmdir()

    def _path(self, url: str) -> str:
        prefix = f"{self._fs.unstrip_protocol(self._root)}/"
        key = url.removeprefix(prefix)
        if key == url or _KEY.fullmatch(key) is None:
            raise PermanentError(f"not an artifact of this store: {url}")
        return f"{self._root}/{key}"


def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, which fsspec keeps for each thread, and the path in it."""
    untyped: Any = core
    return untyped.url_to_fs(url)


def _why(error: Exception) -> str:
    """What a file system says of its error; those that are reached over a network raise errors of their libraries."""
    return getattr(error, "strerror", None) or str(error)
