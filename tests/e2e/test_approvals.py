"""Calls that wait for a person: the question, answers, edits, cancels, expiry, and the death of every process."""

from __future__ import annotations

import itertools
import os
import signal
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from harness_worker.testing.waiting import wait_until
from tests.apps.e2e.journal import DIRECTORY_VARIABLE, scripts_file
from tests.e2e.approval_kit import await_parked, parked, say
from tests.e2e.outsider import Json, Outsider, call
from tests.e2e.times import contents
from tests.stacks import Up, harness_up, run_harness

APP = "tests.apps.e2e.app:registry"
HELD_S = 39.0
"""How long a call would hold its lock."""


@contextmanager
def outsider_of(up: Up, directory: Path) -> Generator[Outsider]:
    """A client of a stack that only this test uses."""
    outsider = Outsider(up.info(), directory)
    with outsider.http:
        yield outsider


def kill_all(up: Up) -> None:
    """Kill every process of the stack."""
    for process in [*up.children(), up.process]:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    up.process.wait()


def kinds(outsider: Outsider, turn: Json) -> list[str]:
    """The types of those of the turn's events that report questions, answers and waits."""
    types = [event["type"] for event in outsider.events(turn["id"])]
    return [kind for kind in types if kind.startswith("approval.") or kind == "turn.requires_action"]


def test_approved_calls_run_and_denied_ones_do_not(outsider: Outsider) -> None:
    """All questions are asked at once, calls keep their order, and the model reads why a call was denied."""
    word = uuid.uuid4().hex
    asked = [call("put", n=1), call("ask_put", n=2), call("ask_put", n=3), call("await_word", word=word)]
    turn = parked(outsider, asked, "done")
    assert [each["outcome"] for each in turn["calls"]] == ["ToolExecutionResult", None, None, None]
    assert [(a["call_id"], a["tool"], a["arguments"]) for a in turn["required_actions"]] == [
        ("0.1", "ask_put", {"n": 2}),
        ("0.2", "ask_put", {"n": 3}),
    ]
    say(outsider, turn, "0.2", "deny", reason="too many")
    assert [action["call_id"] for action in outsider.turn(turn["id"])["required_actions"]] == ["0.1"]
    say(outsider, turn, "0.1", "approve")
    assert say(outsider, turn, "0.1", "deny", status=409)["code"] == "stale_input"
    outsider.give(word)
    ended = outsider.end(turn["id"])
    assert contents(ended) == ["put 1", "put 2", "denied: approval: too many", "heard"]
    told = kinds(outsider, turn)
    assert (told.count("approval.requested"), told.count("approval.resolved")) == (2, 2)
    assert say(outsider, turn, "0.1", "approve", status=409)["code"] == "turn_finished"


def test_edited_arguments_run_once_they_fit(outsider: Outsider) -> None:
    """Edited arguments are checked: wrong ones are refused with 422 and the turn keeps waiting, right ones are run.

    Meanwhile a read of the same wave waits too, though it needs no approval.
    """
    turn = parked(outsider, [call("ask_look", n=1), call("ask_look", n=10)], "done")
    assert [action["call_id"] for action in turn["required_actions"]] == ["0.1"]
    assert say(outsider, turn, "0.1", "approve", status=422, arguments={"n": "x"})["code"] == "invalid_request"
    say(outsider, turn, "0.1", "approve", arguments={"n": 20})
    ended = outsider.end(turn["id"])
    assert contents(ended) == ['{"n":1}', '{"n":20}']
    assert [(each["arguments"], each["wave"]) for each in ended["calls"]] == [({"n": 1}, 0), ({"n": 20}, 0)]


def test_cancel_while_waiting_for_a_person_ends_the_turn(outsider: Outsider) -> None:
    """None of the planned calls runs."""
    turn = parked(outsider, [call("ask_put", n=1), call("put", n=2)], "done")
    assert outsider.http.post(f"/v1/turns/{turn['id']}/cancel").status_code == 202
    ended = outsider.end(turn["id"])
    assert (ended["status"], ended["required_actions"]) == ("cancelled", [])
    assert contents(ended) == ["denied: not_run: the turn was cancelled"] * 2


@pytest.mark.one_database("sqlite")
def test_operator_answers_from_the_command_line(outsider: Outsider) -> None:
    """``turns approve`` and ``turns deny`` accept the end of the turn's id, and answer for one call or for all."""
    turn = parked(outsider, [call("ask_put", n=1), call("ask_put", n=2)], "done")
    url = ("--url", outsider.stack.gateway_url)
    approved = run_harness("turns", "approve", turn["id"][-12:], "0.0", *url)
    assert (approved.returncode, approved.stdout) == (0, f"{turn['id']}  approved\n"), approved.stderr
    assert run_harness("turns", "deny", turn["id"], "--reason", "not today", *url).returncode == 0
    assert contents(outsider.end(turn["id"])) == ["put 1", "denied: approval: not today"]
    late = run_harness("turns", "approve", turn["id"], *url)
    assert late.returncode == 1
    assert "none of its calls waits" in late.stderr


@pytest.mark.one_database("sqlite")
def test_waiting_turns_survive_the_death_of_everything(
    new_database: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    """After all processes were killed, the next stack shows the question, takes an answer and lets questions expire."""
    scripts_file(tmp_path).touch()
    env = {**new_database(), DIRECTORY_VARIABLE: str(tmp_path)}
    with harness_up(tmp_path / "home", "--app", APP, env=env) as up, outsider_of(up, tmp_path) as outsider:
        turn = parked(outsider, [call("ask_put", n=1)], "done")
        kill_all(up)
    hasty = {**env, "HARNESS_APPROVAL_TIMEOUT_S": "1"}
    with harness_up(tmp_path / "home", "--app", APP, env=hasty) as up, outsider_of(up, tmp_path) as outsider:
        assert outsider.turn(turn["id"])["required_actions"] == turn["required_actions"]
        expiring = outsider.post([call("ask_put", n=2)], "done")
        say(outsider, turn, "0.0", "approve")
        assert contents(outsider.end(turn["id"])) == ["put 1"]
        assert contents(outsider.end(expiring)) == ["denied: approval: expired"]
        assert kinds(outsider, turn) == ["approval.requested", "turn.requires_action", "approval.resolved"]


def test_questions_expire_each_by_itself_whatever_dies(
    new_database: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    """A question lasts as long as its tool says: after all processes were killed, the other one still waits."""
    scripts_file(tmp_path).touch()
    env = {**new_database(), DIRECTORY_VARIABLE: str(tmp_path)}
    with harness_up(tmp_path / "home", "--app", APP, env=env) as up, outsider_of(up, tmp_path) as outsider:
        turn = parked(outsider, [call("ask_put", n=1), call("ask_soon", n=2)], "done")
        kill_all(up)
    with harness_up(tmp_path / "home", "--app", APP, env=env) as up, outsider_of(up, tmp_path) as outsider:
        wait_until(lambda: "approval.resolved" in kinds(outsider, turn), "one question to expire", 30)
        waits = await_parked(outsider, turn["id"])
        assert [action["call_id"] for action in waits["required_actions"]] == ["0.0"]
        asked = [event["data"] for event in outsider.events(turn["id"]) if event["type"] == "approval.requested"]
        until = {each["call_id"]: datetime.fromisoformat(each["expires_at"]) for each in asked}
        assert until["0.0"] - until["0.1"] == timedelta(days=1, seconds=-2)
        say(outsider, turn, "0.0", "approve")
        assert contents(outsider.end(turn["id"])) == ["put 1", "denied: approval: expired"]
        assert kinds(outsider, turn) == [
            *("approval.requested", "approval.requested", "turn.requires_action"),
            *("approval.resolved", "turn.requires_action", "approval.resolved"),
        ]


# --- locks ------------------------------------------------------------------------------------------------------------


def spans(outsider: Outsider, ids: list[str]) -> list[tuple[float, float, int]]:
    """When each turn's call began and ended, and the number of its lock, in order of time."""
    found: list[tuple[float, float, int]] = []
    for turn_id in ids:
        entered, left = outsider.journal(turn_id)
        found.append((entered["at"], left["at"], entered["fence"]))
    return sorted(found)


def test_turns_take_turns_with_what_they_lock(outsider: Outsider) -> None:
    """Calls of several turns that lock the same order all run, one after another, under rising numbers."""
    ids = [outsider.post([call("reserve", order="7", s=0.2)], "done") for _ in range(3)]
    assert [contents(outsider.end(turn_id)) for turn_id in ids] == [["held"]] * 3
    found = spans(outsider, ids)
    for (_, left, fence), (entered, _, next_fence) in itertools.pairwise(found):
        assert left <= entered
        assert fence < next_fence


def test_lock_of_a_killed_process_is_free_at_once(outsider: Outsider) -> None:
    """The worker notices that its process died: the next call gets the lock before the first one's time is up."""
    first = outsider.post([call("reserve", order="8", s=HELD_S)], "done")
    entry = outsider.await_entry(first, "0.0")
    second = outsider.post([call("reserve", order="8")], "done")
    os.kill(entry["pid"], signal.SIGKILL)
    assert contents(outsider.end(second)) == ["held"]
    assert contents(outsider.end(first))[0].startswith("outcome_unknown: ")
    (heir,) = outsider.entries(second)
    assert heir["fence"] > entry["fence"]
    assert heir["at"] - entry["at"] < HELD_S
