"""Removes sessions that ended long ago, batch by batch, so that workers can go on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from harness_worker.adapters.sql.pruning import BATCH_TURNS, Key, Removed, Session, SqlPruning
from harness_worker.ports import Clock

PAUSE_S: Final = 0.1
"""Seconds between two batches; processes that wait for SQLite's write lock try at least this often."""

TELL_S: Final = 5.0


def would_prune(pruning: SqlPruning, before: float) -> Removed:
    """How much :func:`prune` would remove now."""
    return sum((_looked_at(pruning, page) for page in _pages(pruning, before)), Removed())


def prune(pruning: SqlPruning, clock: Clock, before: float, tell: Callable[[Removed], None]) -> Removed:
    """Remove all sessions whose turns all ended before a time, and batches that have no turns left afterwards.

    Expired idempotency keys are removed too. Safe to run beside workers and the gateway, and to kill at any time.

    Args:
        pruning: The sessions.
        clock: For the pauses.
        before: The time, in seconds since the epoch, by the database's clock.
        tell: Called now and then with what has been removed so far.

    Raises:
        TransientError: The database did not answer; the next run removes the rest.
    """
    gone, told_at = Removed(), clock.monotonic()
    for page in _pages(pruning, before):
        for keys in _batches(page):
            for removed in _removed(pruning, keys, before):
                gone += removed
                if clock.monotonic() > told_at + TELL_S:
                    told_at = clock.monotonic()
                    tell(gone)
                clock.wait(PAUSE_S)
    pruning.remove_batches(before)
    while pruning.remove_keys():
        clock.wait(PAUSE_S)
    return gone


def _pages(pruning: SqlPruning, before: float) -> Iterator[list[Session]]:
    """The sessions to remove, in pages; each is read once."""
    page = pruning.page(before)
    while page:
        yield [session for session in page if session.is_over]
        page = pruning.page(before, page[-1].key)


def _batches(page: Sequence[Session]) -> Iterator[list[Key]]:
    """Sessions with up to ``BATCH_TURNS`` turns in all, or a single session with more."""
    batch: list[Session] = []
    for session in page:
        if batch and sum(each.turns for each in batch) + session.turns > BATCH_TURNS:
            yield [each.key for each in batch]
            batch = []
        batch.append(session)
    if batch:
        yield [each.key for each in batch]


def _removed(pruning: SqlPruning, keys: Sequence[Key], before: float) -> Iterator[Removed]:
    """One removal, or as many as a long session needs."""
    removed = pruning.remove(keys, before)
    yield removed
    while removed.turns == BATCH_TURNS:
        removed = pruning.remove(keys, before)
        yield removed


def _looked_at(pruning: SqlPruning, page: Sequence[Session]) -> Removed:
    return Removed(
        sessions=len(page),
        turns=sum(session.turns for session in page),
        memories=pruning.own_memories([session.key for session in page]),
    )
