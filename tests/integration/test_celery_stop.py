"""Stopping a turn's work in a worker: the command that is broadcast, and the signal that a pool process gets."""

from __future__ import annotations

import signal
import subprocess
import sys
from select import select
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery.worker import state as worker_state
from kombu.asynchronous import Hub

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.dispatcher import CeleryDispatcher
from harness_worker.adapters.celery.pool_processes import MOST_FALSE_STARTS
from harness_worker.adapters.celery.stopping import SECOND_KNOCK_S, stop_tools
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.bootstrap.engine import timing_of
from harness_worker.config import load_settings
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import ToolMessage
from tests.integration.mailbox import mailbox
from tests.processes import runs

CHILD = """
import os, signal, time
from contextlib import suppress
from billiard.pool import soft_timeout_sighandler
from celery.exceptions import SoftTimeLimitExceeded
from harness_worker.adapters.celery.soft_deadline import SignalDeadline, keep_knocks_for_bodies
from harness_worker.ports import DeadlineReached

def knock():
    os.kill(os.getpid(), signal.SIGUSR1)

def run(is_revoked, body):
    try:
        with SignalDeadline(100.0, lambda: is_revoked):
            body()
    except DeadlineReached:
        return "stopped"
    return "ran"

def swallow():
    with suppress(SoftTimeLimitExceeded):
        knock()
        time.sleep(3)

def tidy():
    try:
        knock()
        time.sleep(3)
    finally:
        knock()
        print("cleaned up")

keep_knocks_for_bodies()
signal.signal(signal.SIGUSR1, soft_timeout_sighandler)  # as billiard does, later than any initializer
knock()
print("of another call, before the body:", run(False, lambda: None))
knock()
print("meant, before the body:", run(True, lambda: None))
print("meant, in the body:", run(True, lambda: (knock(), time.sleep(3))))
print("meant, and swallowed:", run(True, swallow))
print("meant, and again while it cleans up:", run(True, tidy))
print("of another call, in the body:", run(False, knock))
knock()
print("timer left:", signal.getitimer(signal.ITIMER_REAL)[0])
"""

POOL = """
import os, signal, subprocess
from harness_worker.adapters.celery.pool_processes import ToolPool, make_group_leader

def begin():
    make_group_leader()
    print(subprocess.Popen(["sleep", "100"], stdout=subprocess.DEVNULL).pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

pool = ToolPool.Pool(processes=1, initializer=begin, threads=False)
os.waitid(os.P_PID, pool._pool[0].pid, os.WEXITED | os.WNOWAIT)
pool._join_exited_workers()
print("processes left:", len(pool._pool), flush=True)
os._exit(0)
"""

HALF = """
import os
from celery.signals import worker_process_init
from harness_worker.adapters.celery.pool_processes import ToolPool, begin

def fail():
    raise MemoryError

def forked(**_):
    begin(fail)

worker_process_init.connect(forked)
pool = ToolPool.Pool(processes=1, initializer=lambda: worker_process_init.send(sender=None), threads=False)
print(os.waitid(os.P_PID, pool._pool[0].pid, os.WEXITED | os.WNOWAIT).si_status == os.EX_SOFTWARE, flush=True)
os._exit(0)
"""

REFUSED = """
import errno, os, signal
from kombu.asynchronous import Hub
from harness_worker.adapters.celery.pool_processes import ToolPool, make_group_leader

pool = ToolPool.Pool(processes=2, initializer=make_group_leader, threads=False)
pool.register_with_event_loop(Hub())

def refuse():
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

def kill():
    pid = pool._pool[0].pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

def look():
    pool.maintain_pool()
    print("processes:", len(pool._pool), "open files:", len(os.listdir("/proc/self/fd")) - before, flush=True)

before = len(os.listdir("/proc/self/fd"))
fork, os.fork = os.fork, refuse
kill()
for _ in range(3):
    look()
os.fork = fork
look()
kill()
look()
for process in pool._pool:
    os.kill(process.pid, signal.SIGKILL)
os._exit(0)
"""

DYING = """
import os, signal, time
from kombu.asynchronous import Hub
from harness_worker.adapters.celery.pool_processes import ToolPool

def close_and_stay():
    os.closerange(3, 256)
    time.sleep(100)

pool = ToolPool.Pool(processes=1, initializer=close_and_stay, threads=False)
(process,) = pool._pool
hub = Hub()
pool.register_with_event_loop(hub)
loop = hub.create_loop()
while process._sentinel_poll is not None:
    next(loop)
pool.register_with_event_loop(Hub())
print("registered:", pool._pool == [process], flush=True)
os.kill(process.pid, signal.SIGKILL)
os._exit(0)
"""

CROWDED = """
import os, resource, signal
from kombu.asynchronous import Hub
from harness_worker.adapters.celery.pool_processes import ToolPool, make_group_leader

hub = Hub()
pool = ToolPool.Pool(processes=1, initializer=make_group_leader, threads=False)
pool.register_with_event_loop(hub)
loop = hub.create_loop()

def until(is_so):
    while not is_so():
        next(loop)

def sent(work):
    job = pool.apply_async(work)
    until(lambda: job._accepted)
    return job

def serve():
    job = sent(os.getpid)
    until(job.ready)
    files = len(os.listdir("/proc/self/fd")) - before
    print("serves:", job.get() == pool._pool[0].pid, "open files:", files, flush=True)

def lose():
    pid = pool._pool[0].pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

def refuse(*_):
    raise OSError(24, "Too many open files")

sent(os.getpid)
before = len(os.listdir("/proc/self/fd"))
serve()
job = sent(signal.pause)
lose()
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
for _ in range(2):
    pool.maintain_pool()
    print("processes:", len(pool._pool), "its job is over:", job.ready(), flush=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
pool.maintain_pool()
serve()
dup, os.dup = os.dup, refuse
lose()
pool.maintain_pool()
os.dup = dup
os.waitid(os.P_PID, pool._pool[0].pid, os.WEXITED | os.WNOWAIT)
pool.maintain_pool()
serve()
killpg, os.killpg = os.killpg, refuse
lose()
pool.maintain_pool()
os.killpg = killpg
pool.maintain_pool()
serve()
os.kill(pool._pool[0].pid, signal.SIGKILL)
os._exit(0)
"""

ONE_PROCESS = """
import os
from kombu.asynchronous import Hub
from harness_worker.adapters.celery.pool_processes import ToolPool, leave_after_job, make_group_leader

hub = Hub()
pool = ToolPool.Pool(processes=1, initializer=make_group_leader, threads=False)
pool.register_with_event_loop(hub)
loop = hub.create_loop()
first = pool._pool[0].pid

def work(*jobs):
    while not all(job.ready() for job in jobs):
        pool.maintain_pool()
        next(loop)
    return jobs
"""

LEAVES = (
    ONE_PROCESS
    + """
jobs = work(*map(pool.apply_async, (os.getpid, leave_after_job, os.getpid, os.getpid)))
print([job.get() in (None, first) for job in jobs], len({job.get() for job in jobs}), len(pool._pool), flush=True)
os._exit(0)
"""
)

LEAKS = (
    ONE_PROCESS
    + """
import resource

kept = []

def leak(left):
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            kept.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        for _ in range(left):
            os.close(kept.pop())

for left in (0, 3, 40):
    jobs = work(pool.apply_async(os.getpid), pool.apply_async(leak, (left,)), pool.apply_async(os.getpid))
    before, _, after = (job.get() for job in jobs)
    print(left, "left, is replaced:", before != after, flush=True)
os._exit(0)
"""
)

KEEPS_NONE = (
    ONE_PROCESS
    + """
jobs = work(*(pool.apply_async(os.listdir, ("/proc/self/fd",)) for _ in range(3)))
_, before, after = (len(job.get()) for job in jobs)
print("more open files:", after - before, flush=True)
os._exit(0)
"""
)

FAILS = (
    ONE_PROCESS
    + """
jobs = work(pool.apply_async(os.getpid), pool.apply_async(int, ("x",)), pool.apply_async(os.getpid))
try:
    jobs[1].get()
except ValueError as error:
    print(error)
print([job.get() == first for job in (jobs[0], jobs[2])], len(pool._pool), flush=True)
os._exit(0)
"""
)

DIES_EARLY = (
    ONE_PROCESS
    + """
import signal
os.kill(first, signal.SIGKILL)
os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
print("goes on:", pool.did_start_ok())
pool.maintain_pool()
(job,) = work(pool.apply_async(os.getpid))
print("served by another:", job.get() != first, flush=True)
os._exit(0)
"""
)

BEGINS_LATE = """
import os, signal
from kombu.asynchronous import Hub
from harness_worker.adapters.celery.consumer import CarefulConsumer
from harness_worker.adapters.celery.pool_processes import ToolPool, make_group_leader

hub = Hub()
pool = ToolPool.Pool(processes=1, initializer=make_group_leader, threads=False, proc_alive_timeout=0.0)
pool.register_with_event_loop(hub)
first = pool._pool[0].pid
os.kill(first, signal.SIGKILL)
os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
pool.maintain_pool()
hub.reset()
consumer = object.__new__(CarefulConsumer)
consumer.hub = hub
consumer._tick()
pool.register_with_event_loop(hub)
loop = hub.create_loop()
job = pool.apply_async(os.getpid)
while not job.ready():
    next(loop)
print("serves:", job.get() == pool._pool[0].pid, flush=True)
os._exit(0)
"""

NEVER = """
import os
from celery.worker import state
from kombu.asynchronous import Hub
from harness_worker.adapters.celery.pool_processes import ToolPool

pool = ToolPool.Pool(processes=2, initializer=lambda: os._exit(3), threads=False)
pool.register_with_event_loop(Hub())
looks = 0
while state.should_stop is None:
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    pool.maintain_pool()
    looks += 1
print("looks:", looks, "exit code:", state.should_stop, flush=True)
os._exit(0)
"""

SERVED = (
    ONE_PROCESS
    + """
import signal
from celery.worker import state
from harness_worker.adapters.celery.pool_processes import MOST_FALSE_STARTS
work(pool.apply_async(os.getpid))
for _ in range(MOST_FALSE_STARTS + 1):
    pid = pool._pool[0].pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    pool.maintain_pool()
print("goes on:", state.should_stop is None, flush=True)
os._exit(0)
"""
)

EARLY = (
    ONE_PROCESS.replace(
        "pool.register_with",
        """
import signal
os.kill(pool._pool[0].pid, signal.SIGKILL)
os.waitid(os.P_PID, pool._pool[0].pid, os.WEXITED | os.WNOWAIT)
pool.maintain_pool()
pool.register_with""",
    )
    + """
(job,) = work(pool.apply_async(os.getpid))
print("served:", job.get() == pool._pool[0].pid, flush=True)
os._exit(0)
"""
)

AWAY = """
import os
from select import select
from kombu.asynchronous import Hub
from harness_worker.adapters.celery.consumer import CarefulConsumer
from harness_worker.adapters.celery.pool_processes import ToolPool, make_group_leader

read, write = os.pipe()
hub = Hub()
tools = object.__new__(ToolPool)
pool = tools._pool = ToolPool.Pool(processes=1, initializer=make_group_leader, threads=False)
pool.register_with_event_loop(hub)
loop = hub.create_loop()
while not pool._all_inqueues:
    next(loop)
job = pool.apply_async(os.read, (read, 1))
pool.on_poll_start()
hub.consolidate_callback(list(pool._all_inqueues))
select([pool._pool[0].outq._reader], [], [])
hub.reset()
pool.flush()
print("has begun:", job._accepted, flush=True)
os.write(write, b"x")
consumer = object.__new__(CarefulConsumer)
consumer.hub, consumer.pool = hub, tools
while not job.ready():
    consumer._tick()
print("has ended:", job.get(), flush=True)
os._exit(0)
"""

UNREADABLE = (
    ONE_PROCESS
    + """
import signal, struct
work(pool.apply_async(os.getpid))
empty, unreadable = struct.pack("!i", 0), struct.pack("!i", 1) + b"\\1"
os.write(pool._pool[0].outq._writer.fileno(), empty + unreadable)
os.kill(first, signal.SIGKILL)
os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
pool.maintain_pool()
(job,) = work(pool.apply_async(os.getpid))
print("served by another:", job.get() != first, flush=True)
os._exit(0)
"""
)

AWAY_AT_ONCE = ONE_PROCESS.replace("pool.register_with", "pool.read_messages()\npool.register_with") + (
    """
(job,) = work(pool.apply_async(os.getpid))
print("served:", job.get() == first, flush=True)
os._exit(0)
"""
)

HALF_TOLD = (
    ONE_PROCESS
    + """
import inspect, pickle, signal, struct
from billiard.pool import READY

job = pool.apply_async(signal.pause)
while not job._accepted:
    next(loop)
(process,) = pool._pool
message = pickle.dumps((READY, (job._job, None, (True, "read"), process.inqW_fd)))
pipe, told = process.outq._writer.fileno(), struct.pack("!i", len(message)) + message

def read_in_part():
    while not inspect.isgenerator(hub.readers[process.outqR_fd][0]):
        next(loop)
"""
)
WHOLE = """
work(job)
print(job.get(), "heard on:", not inspect.isgenerator(hub.readers[process.outqR_fd][0]), flush=True)
os.kill(process.pid, signal.SIGKILL)
os._exit(0)
"""

HALF_READ = f"""
{HALF_TOLD}
os.write(pipe, told[:9])
read_in_part()
hub.reset()
pool.register_with_event_loop(hub)
loop = hub.create_loop()
os.write(pipe, told[9:])
{WHOLE}
"""

HALF_READ_AND_REST_WHILE_AWAY = f"""
{HALF_TOLD}
os.write(pipe, told[:4])
read_in_part()
hub.reset()
pool.flush()
os.write(pipe, told[4:])
pool.read_messages()
pool.register_with_event_loop(hub)
loop = hub.create_loop()
{WHOLE}
"""

HALF_READ_WHILE_AWAY = f"""
{HALF_TOLD}
hub.reset()
os.write(pipe, told[:9])
pool.flush()
pool.register_with_event_loop(hub)
loop = hub.create_loop()
os.write(pipe, told[9:12])
read_in_part()
os.write(pipe, told[12:])
{WHOLE}
"""

EXITS = (
    """
import sys

def exit_and_live():
    try:
        sys.exit("bye")
    except SystemExit as error:
        return f"lives on: {error}"
"""
    + ONE_PROCESS
    + """
(job,) = work(pool.apply_async(exit_and_live))
print(job.get(), flush=True)
os._exit(0)
"""
)

ENDED = """
import os, resource, signal, sys, time
from harness_worker.adapters.celery.soft_deadline import SignalDeadline

def leave(*_):
    raise SystemExit

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
ending = int(sys.argv[1])
signal.signal(ending, leave)  # as billiard does
try:
    with SignalDeadline(100.0, lambda: False):
        os.kill(os.getpid(), ending)
        time.sleep(50)
except SystemExit:
    print("the body failed")
"""

STOPPED = """
import os, signal, subprocess, time
from harness_worker.adapters.celery.soft_deadline import SignalDeadline
from harness_worker.ports import DeadlineReached

def wait():
    with SignalDeadline(100.0, lambda: True):
        started.append(subprocess.Popen(["sleep", "50"]))
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(50)

started = []
try:
    wait()
except DeadlineReached:
    print("its process:", started[0].wait())
"""

OBEDIENT = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.write(1, b"1")
while True:
    signal.sigwait({signal.SIGUSR1})
    os.write(1, b"2")
"""

BLOCKS = """
import signal, time
from harness_worker.adapters.celery.soft_deadline import SignalDeadline, keep_knocks_for_bodies
from harness_worker.ports import DeadlineReached

def run(limit_s, body):
    try:
        with SignalDeadline(limit_s, lambda: False):
            body()
    except DeadlineReached:
        return "stopped"
    return "ran"

def block():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    signal.setitimer(signal.ITIMER_REAL, 0.1)  # only now is its time nearly over
    while signal.SIGALRM not in signal.sigpending():
        pass

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
keep_knocks_for_bodies()
print("blocks its own:", run(20.0, block))
print("still blocked:", *sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))))
print("next:", run(20.0, lambda: time.sleep(0.1)))
print("next, for too long:", run(0.1, lambda: time.sleep(5)))
"""

SWALLOWS = """
import os, signal, time
from contextlib import suppress
from celery.exceptions import SoftTimeLimitExceeded
from harness_worker.adapters.celery.soft_deadline import SignalDeadline, keep_knocks_for_bodies
from harness_worker.ports import DeadlineReached

keep_knocks_for_bodies()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
try:
    with SignalDeadline(0.1, lambda: False):
        with suppress(SoftTimeLimitExceeded):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
            time.sleep(5)
        print("swallowed")
        os.kill(os.getpid(), signal.SIGUSR1)
        print("went on")
except DeadlineReached:
    print("stopped")
"""

LITTLE = """
import os, signal
from harness_worker.adapters.celery.soft_deadline import SignalDeadline, keep_knocks_for_bodies
from harness_worker.ports import DeadlineReached

def end_at_once(_, seconds):
    if seconds:
        signal.raise_signal(signal.SIGALRM)

keep_knocks_for_bodies()
signal.setitimer = end_at_once
try:
    with SignalDeadline(0.001, lambda: False):
        print("began")
except DeadlineReached:
    print("stopped")
os.kill(os.getpid(), signal.SIGUSR1)
print("still blocked:", *map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))
"""

AT_ITS_END = """
import signal
from harness_worker.adapters.celery.soft_deadline import SignalDeadline, keep_knocks_for_bodies

def come_just_before(number, handler):
    if handler is signal.SIG_IGN:
        signal.raise_signal(number)
    return handle(number, handler)

keep_knocks_for_bodies()
handle, signal.signal = signal.signal, come_just_before
with SignalDeadline(100.0, lambda: True):
    pass
print("ran")
"""

NONE_LEFT = """
import time
from harness_worker.adapters.celery.soft_deadline import SignalDeadline
from harness_worker.ports import DeadlineReached

for left_s in (0.0, -1.0):
    try:
        with SignalDeadline(left_s, lambda: False):
            time.sleep(50)
    except DeadlineReached:
        print("stopped")
"""

ALIKE = """
from celery.exceptions import SoftTimeLimitExceeded
from harness_worker.adapters.celery.soft_deadline import SignalDeadline
from harness_worker.ports import DeadlineReached

try:
    with SignalDeadline(5.0, lambda: False):
        raise SoftTimeLimitExceeded("of the fleet")
except DeadlineReached:
    print("stopped")
except SoftTimeLimitExceeded as error:
    print("failed:", repr(error))
"""

FORKS = """
import os, psutil, signal, time
from harness_worker.adapters.celery.soft_deadline import MOST_DEAD, SignalDeadline
from harness_worker.ports import DeadlineReached

def fork_and_be_stopped():
    if os.fork() == 0:
        time.sleep(100)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGALRM)

for _ in range(MOST_DEAD + 20):
    try:
        with SignalDeadline(50.0, lambda: False):
            fork_and_be_stopped()
    except DeadlineReached:
        pass
print("bounded:", len(psutil.Process().children()) <= MOST_DEAD + 1)
"""

NO_LEADER = """
import os
from harness_worker.adapters.celery.soft_deadline import end_descendants

child = os.fork()
if child == 0:
    end_descendants()
    os._exit(0)
os.waitpid(child, 0)
print("lives")
"""


def test_stop_signal_reaches_only_the_body_it_is_meant_for() -> None:
    """The signal never raises outside of a body, stops a body that it came too early for, and ignores other calls.

    A second signal does not disturb the body while it cleans up, and one that the body swallows changes nothing.
    """
    ran = subprocess.run(
        [sys.executable, "-c", CHILD],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,  # stopping a body ends all the rest of its process group
    )
    assert ran.stdout.splitlines() == [
        "of another call, before the body: ran",
        "meant, before the body: stopped",
        "meant, in the body: stopped",
        "meant, and swallowed: ran",
        "cleaned up",
        "meant, and again while it cleans up: stopped",
        "of another call, in the body: ran",
        "timer left: 0.0",
    ], ran.stderr


def test_what_a_process_started_is_ended_when_it_is_gone() -> None:
    """What a process started ends with it, even if the process lived only between two ticks of the worker."""
    command = [sys.executable, "-c", POOL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        started = int(parent.stdout.readline())
        assert parent.stdout.readline() == "processes left: 0\n"
        wait_until(lambda: not runs(started), "what it started to be gone")


def test_process_that_failed_to_begin_does_not_serve() -> None:
    """Celery would only log such an error; instead the process ends, and the pool starts another."""
    assert _said(HALF) == ["True"]


def test_pool_does_without_a_process_that_is_refused_until_the_next_look() -> None:
    """However often a process is refused, nothing of it is left, and the pool is complete again as soon as possible."""
    assert _said(REFUSED) == [*["processes: 1 open files: -2"] * 3, *["processes: 2 open files: 0"] * 2]


def test_pool_is_served_over_a_new_connection_while_a_process_of_it_dies() -> None:
    """Its pipe is closed already, but it cannot be waited for yet: that does not end the worker."""
    assert _said(DYING) == ["registered: True"]


def test_pool_that_may_open_no_more_files_does_without_a_process_until_it_may() -> None:
    """If a process dies then, its call ends at once; once files can be opened again, the pool is complete and works."""
    assert _said(CROWDED) == [
        "serves: True open files: 0",
        *["processes: 0 its job is over: True"] * 2,
        *["serves: True open files: 0"] * 3,
    ]


def test_process_whose_job_fails_is_replaced() -> None:
    """A task that fails is no failed job: what a job lets escape is that its process cannot run tasks any more."""
    assert _said(FAILS) == ["invalid literal for int() with base 10: 'x'", "[True, False] 1"]


def test_process_that_shall_leave_is_replaced_after_its_job() -> None:
    """The next jobs, one of which it may have been sent already, go to the process in its place."""
    assert _said(LEAVES) == ["[True, True, False, False] 3 1"]


def test_process_whose_tools_have_used_up_its_descriptors_is_replaced() -> None:
    """Whatever it would be sent could open nothing: no file, no connection and no process."""
    assert _said(LEAKS) == ["0 left, is replaced: True", "3 left, is replaced: True", "40 left, is replaced: False"]


def test_process_keeps_no_descriptor_open_after_a_job() -> None:
    """Else it would use them up by itself, in looking how many are left."""
    assert _said(KEEPS_NONE) == ["more open files: 0"]


def test_process_that_dies_while_its_worker_starts_is_replaced() -> None:
    """Celery would end the worker, and with it the processes that did start."""
    assert _said(DIES_EARLY) == ["goes on: True", "served by another: True"]


def test_process_that_dies_before_its_worker_had_a_broker_is_replaced_once_it_has_one() -> None:
    """One that took its place sooner would be unknown to the event loop, and never be sent anything."""
    assert _said(EARLY) == ["served: True"]


def test_process_that_begins_as_the_broker_goes_away_serves_when_it_is_back() -> None:
    """Celery would end the worker if it does not begin in time, and with it all running calls."""
    assert _said(BEGINS_LATE) == ["serves: True"]


def test_call_goes_on_and_ends_while_the_broker_is_away() -> None:
    """Celery would forget one that has just begun, so that nobody sent its heartbeats, and kill one that has ended."""
    assert _said(AWAY) == ["has begun: True", "has ended: b'x'"]


def test_pool_of_which_no_process_ever_begins_ends_its_worker() -> None:
    """It would keep messages that another worker could serve; only after several tries, as memory may be short."""
    assert _said(NEVER) == [f"looks: {MOST_FALSE_STARTS} exit code: 1"]


def test_pool_that_served_is_not_given_up() -> None:
    """Whatever keeps its processes from beginning may pass; calls that run go on meanwhile."""
    assert _said(SERVED) == ["goes on: True"]


def test_process_that_died_in_the_middle_of_a_message_is_replaced() -> None:
    """The rest of a message whose beginning was read before is no message. The worker would end when it met it."""
    assert _said(UNREADABLE) == ["served by another: True"]


def test_worker_that_starts_without_a_broker_reads_from_its_processes_once_it_has_one() -> None:
    """Until then there is no event loop, and no process has been given any work."""
    ran = _run(AWAY_AT_ONCE)
    assert (ran.stdout, ran.stderr) == ("served: True\n", "")


@pytest.mark.parametrize(
    "script",
    [HALF_READ, HALF_READ_AND_REST_WHILE_AWAY, HALF_READ_WHILE_AWAY],
    ids=["read before", "rest while away", "begun while away"],
)
def test_message_that_is_read_in_part_when_the_broker_is_lost_is_read_whole(script: str) -> None:
    """Celery would take its rest for other messages: it would learn of nothing more, or the worker would end."""
    assert _said(script) == ["read heard on: True"]


def test_exit_that_a_job_survived_is_not_taken_for_its_processs() -> None:
    """The process ends when its worker is gone, and prints nothing; billiard would pass on "bye" as its exit code."""
    ran = _run(EXITS)
    assert (ran.stdout, ran.stderr) == ("lives on: bye\n", "")


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_signal_to_end_ends_the_process_in_the_middle_of_a_body(ending: signal.Signals) -> None:
    """As a crash would: if the body failed instead, a write that was made in part would look as if it were not."""
    command = [sys.executable, "-c", ENDED, str(int(ending))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (-ending, "")


def test_call_that_ended_while_its_parent_was_held_up_does_not_cost_its_process() -> None:
    """The parent reads what its processes have said before it kills one whose call seems to go on."""
    hub, request = Hub(), _Running()
    with subprocess.Popen([sys.executable, "-c", OBEDIENT], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"1"
        request.worker_pid = process.pid
        hub.add_reader(process.stdout, worker_state.active_requests.discard, request)
        worker_state.active_requests.add(request)
        try:
            stop_tools(SimpleNamespace(consumer=SimpleNamespace(hub=hub)), "t")
            assert select([process.stdout], [], [], 20.0)[0], "the process says that its call has ended"
            began = monotonic()
            wait_until(lambda: monotonic() > began + SECOND_KNOCK_S, "the time of the second knock")
            for _ in range(3):
                hub.run_once()
            assert request not in worker_state.active_requests
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.read(2) == b"22", "it lives on, and answers again"
        finally:
            worker_state.active_requests.discard(request)
            process.kill()
            hub.close()


class _Running:
    """A request of a call, as Celery keeps it."""

    name = "tool.x"
    hostname = "tools@here"
    kwargs = ToolMessage(turn_id="t", call_id="0.0", attempt=1, read=True, tenant="default").to_kwargs()
    worker_pid = 0


def test_signals_that_a_body_blocks_stop_the_next_body_in_time() -> None:
    """Nor does the next one get the stop that the first did not let through. What was blocked before stays blocked."""
    assert _said(BLOCKS) == [
        "blocks its own: ran",
        f"still blocked: {int(signal.SIGUSR1)} {int(signal.SIGUSR2)}",
        "next: ran",
        "next, for too long: stopped",
    ]


def test_body_that_swallows_its_deadline_is_stopped_by_celerys() -> None:
    """Celery's signal comes a little later, and needs no reason but the time."""
    assert _said(SWALLOWS) == ["swallowed", "stopped"]


def test_time_that_is_over_before_the_body_begins_stops_it() -> None:
    """As little as a millisecond may be left; nothing reaches the process afterwards."""
    assert _said(LITTLE) == ["stopped", f"still blocked: {int(signal.SIGUSR1)}"]


def test_time_that_is_over_as_the_body_ends_stops_nothing() -> None:
    """The body has done everything, and what follows it is the harness's own."""
    assert _said(AT_ITS_END) == ["ran"]


def test_body_that_has_no_time_at_all_is_stopped() -> None:
    """A timer of no seconds would never ring."""
    assert _said(NONE_LEFT) == ["stopped"] * 2


def test_limit_that_a_task_of_another_fleet_exceeded_is_a_failure() -> None:
    """A tool may wait for such a task, whose exception looks like a stop of the tool's own body."""
    assert _said(ALIKE) == ["failed: SoftTimeLimitExceeded('of the fleet')"]


def test_what_a_body_started_ends_when_it_is_stopped() -> None:
    """A tool that waits for a command does not leave it running once the call is over."""
    assert _said(STOPPED) == ["its process: -9"]


def test_processes_that_nobody_waited_for_do_not_pile_up() -> None:
    """A body that is stopped may have forked, and nobody but its process can have the system forget that child."""
    assert _said(FORKS) == ["bounded: True"]


def test_stopping_a_body_ends_nothing_in_a_group_that_is_another_processs() -> None:
    """The group could be the one that the worker itself belongs to."""
    assert _said(NO_LEADER) == ["lives"]


def _said(script: str) -> list[str]:
    return _run(script).stdout.splitlines()


def _run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, start_new_session=True)


def test_stop_command_gives_up_when_the_broker_is_gone() -> None:
    """A coordinator that broadcasts a stop does not wait for ever on a connection to a broker that is gone."""
    port = free_port()
    settings = load_settings()
    app = make_app(settings, redis_url=f"redis://127.0.0.1:{port}/0")
    dispatcher = CeleryDispatcher(app, timing=timing_of(settings))
    with valkey_service(port) as url:
        with mailbox(url, "one") as heard:
            dispatcher.stop("t1")
            wait_until(lambda: heard == ["t1"], "the worker to be told")
        client: Any = redis.Redis(port=port)
        client.shutdown(nosave=True)
        client.close()
        began = monotonic()
        dispatcher.stop("t2")
        assert monotonic() - began < 15.0
    app.close()
