"""What a pool process does first, and what its parent does once it is gone."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from multiprocessing.process import AuthenticationString  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
from threading import Event
from traceback import walk_tb
from typing import Any, Final
from weakref import WeakKeyDictionary

from billiard import util
from billiard.pool import EX_RECYCLE, TERMINATE
from celery.concurrency.asynpool import AsynPool, ResultHandler, Worker
from celery.concurrency.prefork import TaskPool
from celery.platforms import EX_FAILURE
from celery.worker import state

log = logging.getLogger(__name__)

MOST_FALSE_STARTS: Final = 20
"""How often the pool may find processes dead before any of them ever began to work; then the worker gives up."""

SPARE_FILES: Final = 8
"""How many files a process must be able to open after a job, or it is replaced; a command needs as many to start."""

_WHOLE: Final = object()
_leaving: Final = Event()
_exit: Final = sys.exit


def begin(*steps: Callable[[], object]) -> None:
    """Take the steps; if one fails, exit, so that the pool starts another process. Celery would ignore the failure."""
    try:
        for step in steps:
            step()
    except Exception:
        with suppress(Exception):
            log.exception("a process of the pool failed to start; another one is started")
        os._exit(os.EX_SOFTWARE)


def make_group_leader() -> None:
    """Make this process the leader of its own group, so that ending the group ends all that its tools started."""
    os.setpgid(0, 0)


def allow_processes() -> None:
    """Let tools start processes with ``multiprocessing``, which belong to this process's group and end with it.

    Billiard has made this process a daemon, which may not start any, with a key of a type that cannot be passed to a
    spawned process.
    """
    process: Any = multiprocessing.current_process()
    process._config.update(daemon=False, authkey=AuthenticationString(process.authkey))  # noqa: SLF001


def leave_after_job() -> None:
    """Have this process exit after its current job, so that the pool starts another one in its place.

    A tool can damage the process that it runs in, for instance use up its files or lower one of its limits. Such a
    process fails at once whatever it is sent, so it is idle more often than others, and would take most messages.
    """
    _leaving.set()


def _lacks_files() -> bool:
    """Whether tools have left this process too few descriptors, of which only their bodies would learn."""
    files: list[int] = []
    try:
        files.append(os.open(os.devnull, os.O_RDONLY))
        while len(files) < SPARE_FILES:
            files.append(os.dup(files[0]))  # cheaper than to open it: this follows every call
    except OSError as error:
        return error.errno == errno.EMFILE
    finally:
        for file in files:
            os.close(file)
    return False


def _run_or_leave(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - a job of any kind
    """Run a job; if it fails, leave after it. A task that fails does not make its job fail: Celery itself did."""
    try:
        return run(*args, **kwargs)
    except Exception:
        leave_after_job()
        raise
    finally:
        if _lacks_files():
            leave_after_job()


class _LeavingWorker(Worker):
    """What a process of the pool does: it works, and exits after a job that failed or asked for that."""

    def _make_child_methods(self, *args: Any) -> None:  # noqa: ANN401 - billiard's own signature
        super()._make_child_methods(*args)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        wait: Callable[[], Any] = self.wait_for_job  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        leave, sys.exit = sys.exit, _exit  # Billiard's notes the code as the process's, but tools survive it

        def wait_or_leave() -> Any:  # noqa: ANN401 - a message of the pool
            if _leaving.is_set():
                leave(EX_RECYCLE)
            if not (message := wait()):
                return message
            kind, (job, part, run, args, kwargs) = message
            return kind, (job, part, partial(_run_or_leave, run), args, kwargs)

        self.wait_for_job = wait_or_leave


class _ResultHandler(ResultHandler):
    """Reads a message on of which a part was read when the broker was lost, and with it all readers of the event loop.

    Celery would take its rest for another message, and learn of nothing more that the process does: the call would be
    under way, and the process busy, until it is killed at the call's hard limit.
    """

    fileno_to_outq: dict[int, Any]
    on_state_change: Callable[[Any], None]
    _hub: Any

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - Celery's own signature
        super().__init__(*args, **options)
        self._begun = WeakKeyDictionary[Any, Any]()
        """The messages that were read in part, by their process."""

    def _recv_message(self, add_reader: Any, fd: int, callback: Any) -> Generator[None]:  # noqa: ANN401 - Celery's own
        process = self.fileno_to_outq[fd]
        untyped: Any = super()
        message = self._begun.pop(process, None) or untyped._recv_message(add_reader, fd, callback)  # noqa: SLF001
        for _ in message:
            self._begun[process] = message
            yield
            self._begun.pop(process, None)

    def read(self, process: Any) -> None:  # noqa: ANN401 - Celery's own
        """Read what a process has sent, as the event loop does; a message that is not whole yet waits for its rest.

        A process that is gone was read to its end; one of a worker that has had no broker yet has sent nothing.
        """
        fd = process.outqR_fd
        if self._hub is not None and self.fileno_to_outq.get(fd) is process:
            with suppress(OSError, EOFError):
                while next(self._recv_message(self._hub.add_reader, fd, self.on_state_change), _WHOLE) is _WHOLE:
                    pass


class _GroupPool(AsynPool):
    """Ends the rest of a process's group once Celery removes the process, which is gone, from its list.

    If the system refuses a process or its pipes, the pool does without it until the next look. Celery would take the
    error for a lost broker or end the worker, and Billiard would keep a process on its list that never started.
    """

    ResultHandler = _ResultHandler
    Worker = _LeavingWorker
    _pool: list[Any]
    _processes: int
    _queues: dict[Any, Any]
    _registered_with_event_loop: bool
    _result_handler: _ResultHandler
    _state: Any
    _has_begun = False
    _false_starts = 0

    def maintain_pool(self) -> None:
        """Replace the processes that died, as far as the system allows it; give up if none of them ever begins.

        As long as the worker has had no broker, they stay as they are: what Celery started then would get no work.
        """
        if not self._registered_with_event_loop:
            return
        try:
            super().maintain_pool()  # pyright: ignore[reportUnknownMemberType]
        except (OSError, MemoryError) as refused:
            log.warning("the processes of the pool could not be checked, trying again: %r", refused)
        if self._false_starts >= MOST_FALSE_STARTS and state.should_stop is None:
            log.critical("no process of the pool begins to work, see above; the worker ends")
            state.should_stop = EX_FAILURE

    def on_process_alive(self, pid: int) -> None:
        """Called when a process says that it has begun."""
        self._has_begun = True
        super().on_process_alive(pid)  # pyright: ignore[reportUnknownMemberType]

    def did_start_ok(self) -> bool:
        """Whether the worker may begin. It may: a process that is dead by then is replaced like one that dies later."""
        return True

    def flush(self) -> None:
        """Give up what was sent to processes over a connection that is lost, except what they have begun."""
        self.read_messages()
        super().flush()  # pyright: ignore[reportUnknownMemberType]

    def shrink(self, n: int = 1) -> None:
        """End processes for a control command, but not all: the worker would go on taking calls, and run none.

        Raises:
            ValueError: None would be left.
        """
        if n >= self._processes:
            raise ValueError(f"of {self._processes} processes one must stay")
        super().shrink(n)  # pyright: ignore[reportUnknownMemberType]

    def read_messages(self) -> None:
        """Read what the processes have sent, as the event loop does while there is a broker."""
        for process in tuple(self._pool):
            self.process_flush_queues(process)

    def process_flush_queues(self, proc: Any) -> None:  # noqa: ANN401 - Celery's own signature
        """Read what a process has sent; Celery would take the rest of a message for another one."""
        try:
            if self._state != TERMINATE:
                self._result_handler.read(proc)
        except Exception as unreadable:  # noqa: BLE001 - whatever a piece of a pickle may raise
            log.warning("what a process of the pool has told cannot be read: %r", unreadable)

    def on_partial_read(self, job: Any, proc: Any) -> None:  # noqa: ANN401 - Celery's own signature
        """Replace the pipes of a process that died during a job; if that fails, the next process gets new ones."""
        try:
            super().on_partial_read(job, proc)  # pyright: ignore[reportUnknownMemberType]
        except OSError as refused:
            log.warning("the pipes of a process of the pool could not be replaced yet: %s", refused)

    def get_process_queues(self) -> Any:  # noqa: ANN401 - Celery's own signature
        """Return pipes for a new process: those that no process uses, or new ones."""
        if None not in self._queues.values():
            self._queues[self.create_process_queues()] = None
        return super().get_process_queues()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    def _track_child_process(self, proc: Any, hub: Any) -> None:  # noqa: ANN401 - Celery's own signature
        """Watch for the end of a process, unless it was seen: over a new connection, Celery would fail and end."""
        if getattr(proc, "_sentinel_poll", proc) is not None:
            super()._track_child_process(proc, hub)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    def _create_worker_process(self, i: int) -> Any:  # noqa: ANN401 - billiard's own signature
        before = tuple(self._pool)
        try:
            return super()._create_worker_process(i)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        except OSError as refused:
            for process in [process for process in self._pool if process not in before]:
                self._discard(process)
            _close_pipe(refused)
            log.warning("a process of the pool could not be started, trying again: %s", refused)

    def _discard(self, process: Any) -> None:  # noqa: ANN401 - billiard's own
        """Forget a process that never started; end one that started but has no connection to the pool."""
        if process.pid is None:
            self._pool.remove(process)
            self._process_cleanup_queues(process)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        else:
            os.kill(process.pid, signal.SIGKILL)

    def _join_exited_workers(self, shutdown: bool = False) -> Any:  # noqa: ANN401 - billiard's own signature
        before = self._pids()
        try:
            return super()._join_exited_workers(shutdown)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        finally:
            gone = before - self._pids()
            self._false_starts += bool(gone) and not self._has_begun
            for pid in gone:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)

    def _pids(self) -> set[int]:
        return {process.pid for process in self._pool}


def _close_pipe(refused: OSError) -> None:
    """Close the pipe that Billiard made for a process before the refusal, because nothing else refers to it."""
    for frame, _ in walk_tb(refused.__traceback__):
        for end in {"parent_r", "child_w"}.intersection(frame.f_locals):
            os.close(frame.f_locals[end])


class ToolPool(TaskPool):
    """Celery's prefork pool, with processes that lead groups of their own."""

    Pool = _GroupPool
    _pool: Any

    def on_start(self) -> None:
        """Start the processes.

        Their shared memory is a file that is unlinked at once; Billiard would make a directory for it, which would be
        left behind if this process were killed.
        """
        util.get_temp_dir = tempfile.gettempdir
        super().on_start()  # pyright: ignore[reportUnknownMemberType] - Celery's own, untyped

    def read_messages(self) -> None:
        """Learn which calls have begun or ended; for when the event loop does not run, because there is no broker."""
        if self._pool is not None:
            self._pool.read_messages()

    def look(self) -> None:
        """Replace the processes that died; to be called often.

        Celery itself looks when a process's pipe closes, often a moment before the process can be waited for, and then
        only up to 5 seconds later.
        """
        if self._pool is not None:  # else the worker has given up its pool
            self.maintain_pool()
