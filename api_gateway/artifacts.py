"""Artifacts: rows in SQL, and bytes in the workers' store, which may be any file system that fsspec knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from fsspec import core  # pyright: ignore[reportMissingTypeStubs] - fsspec has no types
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.requests.ranges import Span
from harness_worker.errors import ConfigError
from harness_worker.schema import artifacts, db_now
from harness_worker.urls import masked
from harness_worker.wire import artifact_key

CHUNK_BYTES: Final = 1_000_000
READ_TIMEOUT_S: Final = 20.0
"""How long reading one chunk may take."""

THREADS: Final = 8
"""Threads for the store alone: if it hangs, it must not hold up the process's other work in threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArtifact:
    """An artifact that has not expired.

    Args:
        id: Its id, ``art_<hex>``.
        key: The path of its bytes below the store's root.
        size_bytes: How many bytes it has.
    """

    id: str
    key: str
    size_bytes: int


class ArtifactFiles:
    """The files below a directory of any file system.

    Args:
        url: The store's root.

    Raises:
        ConfigError: fsspec does not know the URL's protocol, or its package is not installed.
    """

    def __init__(self, url: str) -> None:
        untyped: Any = core
        try:
            self._fs, root = untyped.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise ConfigError(f"HARNESS_ARTIFACT_URL={masked(url)!r}: {error}") from None
        self._root = str(root).rstrip("/")
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="artifacts")

    async def read(self, key: str, start: int, stop: int) -> bytes:
        """The bytes ``start`` up to ``stop`` of a file; raises ``OSError`` if they cannot be read in time."""
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, key, start, stop)

    def close(self) -> None:
        """Begin no further reads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _read(self, key: str, start: int, stop: int) -> bytes:
        try:
            found = bytes(self._fs.cat_file(f"{self._root}/{key}", start=start, end=stop))
        except OSError:
            raise
        except Exception as error:  # raised by the library that reaches the file system over a network
            raise OSError(str(error)) from error
        if len(found) < stop - start:
            raise OSError(f"{key}: its bytes from {start} to {stop} are not all there")
        return found


class Artifacts:
    """Reads one tenant's artifacts.

    Args:
        engine: The database.
        tenant: Whose artifacts.
        files: Their bytes; ``None`` if this gateway was not told where the store is.
    """

    def __init__(self, engine: AsyncEngine, tenant: str, files: ArtifactFiles | None) -> None:
        self._engine = engine
        self._tenant = tenant
        self._files = files

    @property
    def is_readable(self) -> bool:
        """Whether this gateway knows where the bytes are."""
        return self._files is not None

    async def one(self, artifact_id: str) -> StoredArtifact | None:
        """The artifact with that id; ``None`` if there is none, or it has expired."""
        mine = (artifacts.c.id == artifact_id, artifacts.c.tenant == self._tenant, artifacts.c.expires_at > db_now())
        query = select(artifacts.c.id, artifacts.c.turn_id, artifacts.c.size_bytes).where(*mine)
        async with self._engine.connect() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        return StoredArtifact(id=row.id, key=artifact_key(row.turn_id, row.id), size_bytes=row.size_bytes)

    async def chunks(self, artifact: StoredArtifact, span: Span) -> AsyncGenerator[bytes]:
        """The bytes of ``span``, in order.

        Raises:
            FileNotFoundError: The bytes are gone.
            OSError: The file system does not answer.
        """
        if self._files is None:
            raise FileNotFoundError(artifact.key)
        for start in range(span.start, span.stop, CHUNK_BYTES):
            yield await self._files.read(artifact.key, start, min(start + CHUNK_BYTES, span.stop))
