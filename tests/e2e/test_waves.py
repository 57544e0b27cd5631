"""Which calls run together, and which run in order."""

from __future__ import annotations

from tests.e2e.outsider import Outsider, call
from tests.e2e.times import contents, finished, one_by_one, started, waves


def test_reads_of_one_wave_overlap_in_time(outsider: Outsider) -> None:
    """Two reads run at the same time: each waits in its body until it sees that the other one runs."""
    turn = outsider.run([call("meet", who="a", parties=2), call("meet", who="b", parties=2)], "done")
    assert contents(turn) == ["met", "met"]
    assert waves(turn) == [0, 0]
    one, other = turn["calls"]
    assert max(started(one), started(other)) < min(finished(one), finished(other))
    assert one["worker"] != other["worker"]


def test_four_reads_fill_four_processes(outsider: Outsider) -> None:
    """A wave has as many calls at a time as the pool has processes."""
    turn = outsider.run([call("meet", who=str(n), parties=4) for n in range(4)], "done")
    assert contents(turn) == ["met"] * 4


def test_writes_run_strictly_in_order(outsider: Outsider) -> None:
    """Each write begins after the one before has ended, and has a wave to itself."""
    turn = outsider.run([call("put", n=n, s=0.05) for n in range(4)], "done")
    assert contents(turn) == [f"put {n}" for n in range(4)]
    assert waves(turn) == [0, 1, 2, 3]
    assert one_by_one(turn["calls"])
    assert [line["n"] for line in outsider.journal(turn["id"]) if line["event"] == "effect"] == [0, 1, 2, 3]


def test_read_write_read_is_three_waves(outsider: Outsider) -> None:
    """Waves never reorder: the write waits for the read before it, the read after it for the write."""
    turn = outsider.run([call("look", n=1, s=0.1), call("put", n=2, s=0.1), call("look", n=1)], "done")
    assert waves(turn) == [0, 1, 2]
    assert one_by_one(turn["calls"])
    assert contents(turn) == ['{"n":1}', "put 2", '{"n":1}']


def test_unknown_effect_runs_alone(outsider: Outsider) -> None:
    """A tool without a declared effect runs alone, and its effect is null."""
    turn = outsider.run([call("mystery", n=1), call("mystery", n=2), call("look", n=3)], "done")
    assert waves(turn) == [0, 1, 2]
    assert one_by_one(turn["calls"])
    assert [each["effect"] for each in turn["calls"]] == [None, None, "READ_ONLY"]


def test_parallel_false_of_a_turn_makes_all_sequential(outsider: Outsider) -> None:
    """A turn posted with ``parallel: false`` runs one call at a time."""
    turn = outsider.run([call("look", n=n, s=0.05) for n in range(3)], "done", parallel=False)
    assert waves(turn) == [0, 1, 2]
    assert one_by_one(turn["calls"])


def test_parallel_true_never_overrides_the_agent(outsider: Outsider) -> None:
    """An agent declared with ``parallel=False`` runs one call at a time, whatever the turn asks for."""
    turn = outsider.run([call("look", n=n) for n in range(3)], "done", agent="orderly", parallel=True)
    assert waves(turn) == [0, 1, 2]
    assert one_by_one(turn["calls"])


def test_resource_keys_that_meet_split_the_wave(outsider: Outsider) -> None:
    """Consecutive reads share a wave as long as their keys are disjoint; no keys conflict with nothing."""
    keys = [["a"], ["b"], ["b", "c"], [], ["d"]]
    turn = outsider.run([call("touch", keys=each) for each in keys], "done")
    assert waves(turn) == [0, 0, 1, 1, 1]
    assert finished(turn["calls"][1]) <= started(turn["calls"][2])


def test_equal_reads_do_not_share_a_wave(outsider: Outsider) -> None:
    """A read's default key is its tool with its arguments, so equal calls run one after the other."""
    turn = outsider.run([call("look", n=1), call("look", n=2), call("look", n=1)], "done")
    assert waves(turn) == [0, 0, 1]


def test_steps_count_waves_anew(outsider: Outsider) -> None:
    """Waves count from 0 in each step, and call ids are step and position, even if the model repeats its own ids."""
    turn = outsider.run([call("put", n=1), call("put", n=2)], [call("look", n=3)], [call("put", n=4)], "done")
    assert [(each["call_id"], each["wave"]) for each in turn["calls"]] == [
        ("0.0", 0),
        ("0.1", 1),
        ("1.0", 0),
        ("2.0", 0),
    ]
    assert [each["tool_use_id"] for each in turn["calls"]] == ["toolu_0", "toolu_1", "toolu_0", "toolu_0"]
    assert turn["usage"]["steps"] == 4
    assert turn["usage"]["tool_calls"] == 4


def test_text_beside_calls_is_kept_in_the_history(outsider: Outsider) -> None:
    """Text that the model says beside its calls stays in its message, verbatim."""
    block = {"type": "tool_use", "id": "x", "name": "look", "input": {"n": 1}}
    turn = outsider.run({"content": [{"type": "text", "text": "let me see"}, block]}, "done")
    assert turn["messages"][1]["content"] == [{"type": "text", "text": "let me see"}, block]
    assert turn["output_text"] == "done"
