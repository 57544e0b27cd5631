from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from harness_worker.workloads.base import Half, RecordedCall, WorkloadTask
from harness_worker.workloads.script import ideal_waves, messages_of, script_lines, write_script


def _task(kinds: str, task_id: str = "t1") -> WorkloadTask:
    """A task whose calls are reads (r) and writes (w), each with arguments of its own; R repeats the read before."""
    calls = [
        RecordedCall(tool="look" if kind in "rR" else "put", arguments={"n": n - (kind == "R")}, is_read=kind in "rR")
        for n, kind in enumerate(kinds)
    ]
    return WorkloadTask(id=task_id, input="do it", calls=tuple(calls))


def test_script_puts_a_run_of_reads_in_one_message():
    """Consecutive reads are one message, consecutive writes another, and their order is kept."""
    tools = [[call.tool for call in calls] for calls in messages_of(_task("rrrwwrw"))]
    assert tools == [["look"] * 3, ["put"] * 2, ["look"], ["put"]]


def test_script_ends_with_text():
    """The last line is text only, so that the turn completes; steps count from 0."""
    lines = script_lines(_task("rrw"))
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert [[block["type"] for block in line["content"]] for line in lines] == [
        ["tool_use", "tool_use"],
        ["tool_use"],
        ["text"],
    ]


def test_script_keeps_the_messages_that_the_authors_made():
    """Where they say how many calls a message holds, kinds do not matter."""
    task = replace(_task("rwrww"), messages=(3, 2))
    assert [len(calls) for calls in messages_of(task)] == [3, 2]
    assert [call for calls in messages_of(task) for call in calls] == list(task.calls)


def test_script_of_a_task_without_calls_is_text():
    """A task whose right answer is to do nothing has one line."""
    assert [line["content"][0]["type"] for line in script_lines(_task(""))] == ["text"]


def test_script_names_every_tool_use_differently():
    """Result messages are matched by id: no two of a task are equal."""
    ids = [block["id"] for line in script_lines(_task("rrwwr")) for block in line["content"] if "id" in block]
    assert len(set(ids)) == len(ids) == 5


def test_script_file_is_written_once(tmp_path: Path):
    """A file that says the same is left alone, so that a worker reading it sees no change; else it is replaced."""
    file = tmp_path / "deep" / "script.jsonl"
    write_script(file, [_task("rw")])
    before = file.stat()
    write_script(file, [_task("rw")])
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    write_script(file, [_task("rwr", "t2")])
    assert {json.loads(line)["script"] for line in file.read_text().splitlines()} == {"t2"}


def test_script_file_may_be_written_by_several_at_once(tmp_path: Path):
    """Processes that start together find no file yet: each writes it whole, and nothing else is left."""
    with ThreadPoolExecutor(4) as pool:
        for n in range(50):
            file = tmp_path / f"{n}" / "script.jsonl"
            for writing in [pool.submit(write_script, file, [_task("rw" * 50)]) for _ in range(4)]:
                writing.result()
            assert [left.name for left in file.parent.iterdir()] == [file.name]
            assert len(file.read_text().splitlines()) == 101


def test_ideal_waves_counts_equal_reads_apart():
    """A run of different reads is one wave, an equal read waits for the first, each write is alone."""
    assert ideal_waves([_task("rrr"), _task("rRw"), _task("ww")]) == 1 + 3 + 2


def test_half_splits_without_rest():
    """Every task is in exactly one of the halves, by the parity of its id's SHA-256."""
    ids = [str(n) for n in range(200)]
    assert all(Half.DEV.holds(name) != Half.HELDOUT.holds(name) for name in ids)
    assert all(Half.ALL.holds(name) for name in ids)
    # sha256("0") ends in …e9, an odd number; sha256("3") in …ce, an even one.
    assert Half.HELDOUT.holds("0")
    assert Half.DEV.holds("3")
