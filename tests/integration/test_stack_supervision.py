"""Supervising real child processes: the grace time, a second signal, and processes left over."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from harness_worker.config import environment
from harness_worker.entrypoints.stack import StackInfo, killing, open_stack, subprocess_stack
from harness_worker.entrypoints.stack import child as child_module
from harness_worker.entrypoints.stack.child import Child, ChildSpec
from harness_worker.entrypoints.stack.home import Home, HomeInUse
from harness_worker.entrypoints.stack.identity import ProcessIdentity
from harness_worker.entrypoints.stack.killing import MARK, kill_session
from harness_worker.entrypoints.stack.leftovers import end_leftovers
from harness_worker.entrypoints.stack.logs import LogWriter
from harness_worker.entrypoints.stack.signals import StopSignal
from harness_worker.entrypoints.stack.supervisor import Supervisor
from harness_worker.testing.waiting import wait_until
from harness_worker.threads.timeouts import within
from tests.stacks import none_runs

_POLITE = "import signal; print('up', flush=True); signal.pause()"
_STUBBORN = f"import signal; [signal.signal(s, signal.SIG_IGN) for s in (15, 3, 2)]; {_POLITE}\nwhile 1: signal.pause()"
MORE_THAN_THERE_IS = 1 << 47
"""A size, in bytes, of a thread's stack that no process has room for, so that the system refuses the thread."""

_PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_STUBBORN!r}]); {_POLITE}"
_HELD = f"""
import ctypes, os
held, trace = os.getpid(), ctypes.CDLL(None, use_errno=True).ptrace
if os.fork() == 0:
    assert trace(0x4206, held, 0, 0) == 0, os.strerror(ctypes.get_errno())  # PTRACE_SEIZE
    {_POLITE}
import signal; signal.pause()
"""
"""Once killed, it cannot be waited for until the process that traces it has ended, as if it slept in the kernel."""
_CARELESS = f"""
import signal, subprocess, sys
print(subprocess.Popen([sys.executable, '-c', {_POLITE!r}], start_new_session=True).pid, flush=True)
signal.pause()
"""
"""Starts a process that leads a session, and never waits for it."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A prepared home."""
    made = Home(tmp_path / "home")
    made.prepare()
    return made


@pytest.fixture
def output() -> io.StringIO:
    """The file that the supervisor writes to."""
    return io.StringIO()


def child(home: Home, output: io.StringIO, program: str, role: str = "tools") -> Child:
    """A child that runs a Python program."""
    spec = ChildSpec(role=role, command=(sys.executable, "-c", program), environment=environment())
    return Child(spec, home, LogWriter(output, coloured=False))


def supervisor(output: io.StringIO, stop: StopSignal, grace_s: float) -> Supervisor:
    """A supervisor without children."""
    return Supervisor(stop, LogWriter(output, coloured=False), grace_s=grace_s, on_change=lambda: None)


@contextmanager
def watched_while(
    act: Callable[[Child], None], home: Home, output: io.StringIO, program: str = _POLITE
) -> Generator[Child]:
    """A child of a supervisor that has watched it while something was done to it, and was then told to stop."""
    stop = StopSignal()

    def act_and_stop() -> None:
        try:
            act(polite)
        finally:
            stop.request(signal.SIGTERM)

    with supervisor(output, stop, grace_s=5.0) as group:
        polite = child(home, output, program)
        group.start(polite)
        wait_until(lambda: said_up(output), "the child's first words")
        helper = threading.Thread(target=act_and_stop)
        helper.start()
        group.watch()
        helper.join()
        yield polite


def said_up(output: io.StringIO, times: int = 1) -> bool:
    """Whether the children's first output was logged."""
    return output.getvalue().count("| up") >= times


def test_stubborn_child_is_killed_within_the_grace_time(home: Home, output: io.StringIO) -> None:
    """A child that ignores signals does not outlive the grace time, and the log says so."""
    with supervisor(output, StopSignal(), grace_s=1.0) as group:
        stubborn = child(home, output, _STUBBORN)
        group.start(stubborn)
        wait_until(lambda: said_up(output), "the child's first words")
    assert stubborn.exit_code() == -signal.SIGKILL
    assert "did not end in time: killed" in output.getvalue()


def test_second_interrupt_kills_at_once(home: Home, output: io.StringIO) -> None:
    """Another Ctrl-C during the drain ends the wait."""
    stop = StopSignal()
    with supervisor(output, stop, grace_s=3_600.0) as group:  # longer than any test
        stubborn = child(home, output, _STUBBORN)
        group.start(stubborn)
        wait_until(lambda: said_up(output), "the child's first words")
        stop.request(signal.SIGINT)
        threading.Timer(0.3, stop.request, (signal.SIGINT,)).start()
    assert stubborn.exit_code() == -signal.SIGKILL


def test_what_a_child_started_ends_with_it(home: Home, output: io.StringIO) -> None:
    """If a child dies, its own children, such as pool processes, end too."""
    with supervisor(output, StopSignal(), grace_s=5.0) as group:
        parent = child(home, output, _PARENT)
        group.start(parent)
        wait_until(lambda: said_up(output, 2), "both to speak")
        grandchildren = psutil.Process(parent.pid).children()
        assert grandchildren
    assert none_runs(grandchildren)


def test_child_that_cannot_be_started_again_is_tried_once_more(home: Home, output: io.StringIO) -> None:
    """If the system refuses something for a moment, such as disk space, the other children keep running."""

    def take_its_place_away(polite: Child) -> None:
        shutil.rmtree(home.run)
        os.kill(polite.pid, signal.SIGKILL)
        wait_until(lambda: "tools cannot be started (No such file" in output.getvalue(), "the refusal to be told")
        home.prepare()
        wait_until(home.pid_file("tools").exists, "the child to be written down")

    with watched_while(take_its_place_away, home, output) as polite:
        assert psutil.pid_exists(polite.pid)


def test_child_whose_log_gets_no_thread_is_started_once_more(home: Home, output: io.StringIO) -> None:
    """As if the system refused the process itself: its limit of threads may be met between the two."""

    def refuse_threads(polite: Child) -> None:
        usual = threading.stack_size(MORE_THAN_THERE_IS)
        try:
            os.kill(polite.pid, signal.SIGKILL)
            wait_until(lambda: "tools cannot be started (can't start new thread" in output.getvalue(), "the refusal")
        finally:
            threading.stack_size(usual)
        wait_until(lambda: said_up(output, 2), "the child to be started again")

    with watched_while(refuse_threads, home, output) as polite:
        assert psutil.pid_exists(polite.pid)


def test_child_that_ends_while_no_file_can_be_opened_is_started_once_more(home: Home, output: io.StringIO) -> None:
    """Nor can what it started be looked for at that moment; that ends before the child is started again."""
    orphans: list[psutil.Process] = []

    def refuse_files(parent: Child) -> None:
        wait_until(lambda: said_up(output, 2), "both to speak")
        orphans.extend(psutil.Process(parent.pid).children())
        usual = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, usual[1]))
        try:
            os.kill(parent.pid, signal.SIGKILL)
            wait_until(lambda: "tools cannot be started (Too many open files" in output.getvalue(), "the refusal")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        wait_until(lambda: said_up(output, 4), "both to be started again")
        assert none_runs(orphans)

    with watched_while(refuse_files, home, output, _PARENT) as parent:
        assert psutil.pid_exists(parent.pid)
    assert orphans


def test_session_of_a_dead_child_is_looked_for_once(
    home: Home, output: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is gone, its number may be that of somebody else's session, which a later start would end."""
    ended: list[int] = []
    monkeypatch.setattr(child_module, "kill_session", ended.append)
    polite = child(home, output, _POLITE)
    polite.start()
    dead = polite.pid
    polite.kill()
    polite.start()
    polite.kill()
    assert ended == [dead, polite.pid]


def test_stop_while_no_file_can_be_opened_ends_every_child(home: Home, output: io.StringIO) -> None:
    """Although nobody can look for what they started; their records stay for the next start, which looks for it."""
    roles = ("tools", "gateway")
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with supervisor(output, StopSignal(), grace_s=1.0) as group:
            children = [child(home, output, _STUBBORN, role) for role in roles]
            for each in children:
                group.start(each)
            wait_until(lambda: said_up(output, 2), "the children's first words")
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, usual[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert [each.exit_code() for each in children] == [-signal.SIGKILL] * 2
    assert all(home.pid_file(role).exists() for role in roles)


def test_child_that_the_system_does_not_end_holds_nobody_up(home: Home, output: io.StringIO) -> None:
    """A killed process may sleep in the kernel for ever, for instance because a disk does not answer."""
    with supervisor(output, StopSignal(), grace_s=1.0) as group:
        held = child(home, output, _HELD)
        group.start(held)
        wait_until(lambda: said_up(output), "the process to be held")
    assert f"tools (pid {held.pid}) was killed, but the system has not ended it yet" in output.getvalue()
    wait_until(lambda: held.exit_code() is not None, "its end, after that of the process that traced it")


def test_dead_process_that_its_parent_does_not_wait_for_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed worker started belongs to PID 1, which may take its time to wait for it, or never do."""
    monkeypatch.setattr(killing, "_WAIT_S", 600.0)
    with subprocess.Popen([sys.executable, "-c", _CARELESS], stdout=subprocess.PIPE) as careless:
        try:
            assert careless.stdout is not None
            session = int(careless.stdout.readline())
            within(30.0, lambda: kill_session(session))
            assert psutil.Process(session).status() == psutil.STATUS_ZOMBIE
        finally:
            careless.kill()


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_stack_that_the_system_does_not_end_holds_no_command_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same holds for the supervisor of a stack that ``harness run`` started for itself."""
    info = StackInfo(gateway_url="", redis_url="", database_url="", pid=1, home=tmp_path, processes=(), app="PID")
    held = _HELD.replace(_POLITE, f"print({info.ready_line()!r}.replace('PID', str(held)), flush=True); {_POLITE}")
    monkeypatch.setattr(subprocess_stack, "CLI", (sys.executable, "-c", held))
    monkeypatch.setattr(subprocess_stack, "_DRAIN_SLACK_S", 0.0)
    monkeypatch.setattr(subprocess_stack, "_KILL_TIMEOUT_S", 0.1)
    with open_stack(home=tmp_path, app="any:registry", env={"HARNESS_GRACE_S": "0.1"}) as stack:
        pid = int(stack.app or "")
    wait_until(lambda: psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD), "its kill to arrive")
    os.killpg(pid, signal.SIGKILL)  # what traced it


def test_home_of_a_stack_that_a_command_starts_is_taken_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commands may start one at once: the second is refused, and leaves the first one's log alone."""
    info = StackInfo(gateway_url="", redis_url="", database_url="", pid=1, home=tmp_path, processes=())
    program = f"import sys; print('log', file=sys.stderr, flush=True); print({info.ready_line()!r}, flush=True)"
    monkeypatch.setattr(subprocess_stack, "CLI", (sys.executable, "-c", f"{program}; {_POLITE}"))
    home = Home(tmp_path)
    with open_stack(home=tmp_path, app="any:registry"):
        with pytest.raises(HomeInUse), open_stack(home=tmp_path, app="any:registry"):
            pass
        assert (home.logs / "up.log").read_text() == "log\n"
    with home.locked():
        pass


def test_child_that_is_ended_by_a_signal_without_a_name_is_started_again(home: Home, output: io.StringIO) -> None:
    """The others keep running, whatever ends one of them."""
    unnamed = signal.SIGRTMIN + 1

    def end(polite: Child) -> None:
        os.kill(polite.pid, unnamed)
        wait_until(lambda: said_up(output, 2), "the child to be started again")

    with watched_while(end, home, output):
        pass
    assert f"tools was ended by signal {unnamed}; starting it again" in output.getvalue()


def test_log_lines_carry_their_role(home: Home, output: io.StringIO) -> None:
    """Each line names its process's role, and a file gets no colours."""
    with supervisor(output, StopSignal(), grace_s=5.0) as group:
        group.start(child(home, output, _POLITE, role="gateway"))
        wait_until(lambda: said_up(output), "the child's first words")
    assert "gateway     | up\n" in output.getvalue()
    assert "\x1b" not in output.getvalue()


@pytest.fixture
def orphan(home: Home) -> Generator[subprocess.Popen[bytes]]:
    """A process such as a killed stack would leave."""
    env = {**os.environ, MARK: str(home.path)}
    with subprocess.Popen([sys.executable, "-c", _STUBBORN], env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # a process that has just begun may show no environment yet
        yield process
        process.kill()


def test_leftover_known_by_its_mark_is_ended(home: Home, output: io.StringIO, orphan: subprocess.Popen[bytes]) -> None:
    """A process that carries the home's mark is ended before the next start."""
    end_leftovers(home, LogWriter(output, coloured=False))
    assert not psutil.pid_exists(orphan.pid)
    assert str(orphan.pid) in output.getvalue()


def test_leftover_known_by_its_file_is_ended(home: Home, output: io.StringIO) -> None:
    """A server without the mark is recognised by its pid and start time in a file."""
    with subprocess.Popen([sys.executable, "-c", _STUBBORN]) as server:
        identity = ProcessIdentity.of(server.pid)
        record = {"pid": identity.pid, "start": identity.start}
        home.pid_file("redis").write_text(json.dumps(record))
        end_leftovers(home, LogWriter(output, coloured=False))
        assert not psutil.pid_exists(server.pid)
    assert not home.pid_file("redis").exists()


def test_process_is_known_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux, setting the clock moves the boot's time of day, and with it that of every process's start."""
    identity = ProcessIdentity.of(os.getpid())
    said = psutil.Process().create_time()

    def an_hour_later(_: psutil.Process) -> float:
        return said + 3_600

    monkeypatch.setattr(psutil.Process, "create_time", an_hour_later)
    assert identity.is_alive() is psutil.LINUX


def test_pid_that_was_given_again_is_left_alone(home: Home, output: io.StringIO) -> None:
    """If the process of a recorded pid has another start time, it belongs to somebody else."""
    identity = ProcessIdentity.of(os.getpid())
    record = {"pid": identity.pid, "start": f"{identity.start}1"}
    home.pid_file("redis").write_text(json.dumps(record))
    end_leftovers(home, LogWriter(output, coloured=False))
    assert output.getvalue() == ""
