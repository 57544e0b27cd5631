"""How a turn's events become lines on a terminal or in a pipe."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import pytest
from rich.cells import cell_len
from rich.console import Console

from harness_worker.entrypoints.view.catalogue_table import catalogue_table
from harness_worker.entrypoints.view.figures import duration
from harness_worker.entrypoints.view.lines import ASCII_MARKS, UNICODE_MARKS, Marks, draw, marks_for, totals
from harness_worker.entrypoints.view.progress import CallCell, ModelLine, Progress, WaveLine, fold
from harness_worker.entrypoints.view.screen import QUIET_S, SPOKEN_ROWS, Screen
from harness_worker.entrypoints.view.turn_facts import score_line
from harness_worker.entrypoints.view.turn_page import TurnPage
from harness_worker.entrypoints.view.turn_table import turn_table
from harness_worker.testing.waiting import wait_until
from tests.unit.engine_kit import SetClock

Events = list[dict[str, Any]]


def _event(kind: str, at_s: float, **data: object) -> dict[str, Any]:
    return {"seq": 1, "type": kind, "turn_id": "t", "at": f"2026-01-01T00:00:{at_s:09.6f}Z", "data": data}


def _completed(
    call_id: str, tool: str, *, outcome: str = "ToolExecutionResult", is_error: bool = False
) -> dict[str, Any]:
    return {"call_id": call_id, "tool": tool, "outcome": outcome, "is_error": is_error, "elapsed_ms": 12.0}


def _turn_events() -> Events:
    return [
        _event("turn.queued", 0.0),
        _event("step.started", 0.1, step=0),
        _event("model.completed", 1.0, step=0, text="Let me see.", stop_reason="tool_use"),
        _event("wave.started", 1.0, step=0, wave=0, calls=["0.0", "0.1"]),
        _event("tool.completed", 2.5, **_completed("0.0", "get_order")),
        _event("tool.completed", 2.5, **_completed("0.1", "track", outcome="ToolFailure", is_error=True)),
        _event("wave.completed", 2.5, step=0, wave=0, calls=["0.0", "0.1"]),
        _event("model.completed", 3.0, step=1, text="Here.", stop_reason="end_turn"),
        _event("turn.completed", 3.0),
    ]


def _folded(events: Events) -> Progress:
    progress = Progress()
    for event in events:
        progress = fold(progress, event)
    return progress


def _shown(events: Events, calls: Sequence[dict[str, Any]] = (), width: int = 80) -> str:
    out = io.StringIO()
    with Screen(Console(file=out, width=width), SetClock().monotonic) as screen:
        for end in range(1, len(events) + 1):
            screen.show(_folded(events[:end]), calls)
    return out.getvalue()


def test_progress_elapsed_times_add_up_to_the_turns() -> None:
    """Each line's time runs from the line before it, so that a reader can add them."""
    progress = _folded(_turn_events())
    assert [line.elapsed_s for line in progress.lines] == pytest.approx([1.0, 1.5, 0.5])
    assert progress.end == "turn.completed"


def test_progress_unknown_events_change_nothing() -> None:
    """A newer gateway's events do not break an older command."""
    before = _folded(_turn_events()[:3])
    assert fold(before, _event("memory.recalled", 1.2)) == before


def test_screen_in_a_pipe_prints_each_line_once_without_escapes() -> None:
    """A pipe gets a line a model call and a line a wave, calls side by side, and no control characters."""
    told = _shown(_turn_events(), [{"call_id": "0.1", "tool": "track", "is_error": True, "content": "no such parcel"}])
    assert [row.split()[0] for row in told.splitlines()] == ["model", "wave", "track:", "model"]
    wave = told.splitlines()[1]
    assert "✓ get_order 12 ms   ✗ track 12 ms" in wave
    assert wave.endswith("1.50 s")
    assert "track: no such parcel" in told
    assert "\x1b" not in told


@pytest.mark.parametrize("width", [40, 80])
def test_screen_wraps_waves_to_the_width(width: int) -> None:
    """However many calls a wave has, no row is wider than the terminal."""
    ids = [f"0.{number}" for number in range(9)]
    events = [
        _event("turn.queued", 0.0),
        _event("wave.started", 0.0, step=0, wave=0, calls=ids),
        *(_event("tool.completed", 1.0, **_completed(each, "search_products")) for each in ids),
        _event("wave.completed", 1.0, step=0, wave=0, calls=ids),
    ]
    rows = _shown(events, width=width).splitlines()
    assert max(map(len, rows)) <= width
    assert sum(row.count("search_products") for row in rows) == len(ids)


def test_screen_in_a_pipe_says_what_it_waits_for() -> None:
    """A pipe that has heard nothing for a while is told which tools are still running."""
    out, clock = io.StringIO(), SetClock()
    progress = _folded(_turn_events()[:4])
    calls = [{"call_id": f"0.{n}", "tool": tool, "is_error": False, "content": ""} for n, tool in enumerate("ab")]
    with Screen(Console(file=out, width=80), clock.monotonic) as screen:
        screen.show(progress, calls)
        assert "waiting" not in out.getvalue()
        clock.now_s += QUIET_S
        screen.show(progress, calls)
    assert "waiting for a, b (5 s)" in out.getvalue()


def test_screen_in_a_pipe_says_that_no_worker_comes() -> None:
    """Perhaps none runs, or other turns come first. A person was asked already, and may take days in silence."""
    events = [
        *_turn_events()[:3],
        _event("turn.requires_action", 1.0, calls=["0.0"]),
        _event("approval.resolved", 9.0, call_id="0.0", decision="approve"),
    ]
    out, clock, told = io.StringIO(), SetClock(), list[str]()
    with Screen(Console(file=out, width=80), clock.monotonic) as screen:
        for kept in (1, 4, 5):
            for _ in range(2):
                screen.show(_folded(events[:kept]), [])
                clock.now_s += QUIET_S
            screen.show(_folded(events[:kept]), [])
            told.append(out.getvalue())
            out.truncate(out.seek(0))
    queued, parked, answered = told
    assert queued == "  waiting for a worker or earlier turns (5 s)\n  waiting for a worker or earlier turns (10 s)\n"
    assert answered == "  waiting for a worker (5 s)\n  waiting for a worker (10 s)\n"
    assert "waiting" not in parked


def test_screen_on_a_terminal_moves_and_leaves_the_closed_lines() -> None:
    """A terminal shows the open line as it runs, and keeps only closed ones."""
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None)
    with Screen(console, SetClock().monotonic) as screen:
        screen.show(_folded(_turn_events()[:2]), [])
        screen.show(_folded(_turn_events()), [])
    assert "model   answers" in out.getvalue()


def test_screen_on_a_terminal_says_whether_a_person_or_a_worker_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that is parked needs no worker until every one of its calls has been answered."""
    monkeypatch.setenv("TERM", "xterm")
    events = [
        *_turn_events()[:3],
        _event("turn.requires_action", 1.0, calls=["0.0", "0.1"]),
        _event("approval.resolved", 2.0, call_id="0.0", decision="approve"),
        _event("approval.resolved", 3.0, call_id="0.1", decision="deny"),
    ]
    awaited = [(kept, "person" if kept in (4, 5) else "worker") for kept in (1, 3, 4, 5, 6)]
    for kept, whom in awaited:
        out = io.StringIO()
        console = Console(file=out, width=80, force_terminal=True, color_system=None)
        with Screen(console, SetClock().monotonic) as screen:
            screen.show(_folded(events[:kept]), [])
            wait_until(lambda out=out: "waiting for" in out.getvalue(), "the open line to be drawn")
        assert f"waiting for a {whom}" in out.getvalue(), kept


def _delta(text: str, attempt: int = 1) -> dict[str, Any]:
    return _event("model.delta", 0.5, step=0, attempt=attempt, text=text)


def test_progress_gathers_what_the_model_says() -> None:
    """Pieces add up; a step that was asked again begins anew, and what is left of the try before it is dropped."""
    events = [*_turn_events()[:2], _delta("Let me "), _delta("see"), _delta("On", 2), _delta("late"), _delta("ce", 2)]
    (line,) = _folded(events).lines
    assert isinstance(line, ModelLine)
    assert (line.text, line.elapsed_s) == ("Once", None)
    closed = _folded([*events, _turn_events()[2], _delta("straggler", 3)])
    assert closed.lines == _folded(_turn_events()[:3]).lines


def test_screen_on_a_terminal_shows_text_while_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last rows of the text move in place, wrapped to the width, harmless; the closed line takes their place."""
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    console = Console(file=out, width=40, force_terminal=True, color_system=None)
    said = "one \x1b[2J " + "wide 漢字 words " * 20 + "and the end"
    with Screen(console, SetClock().monotonic) as screen:
        screen.show(_folded([*_turn_events()[:2], _delta(said)]), [])
        wait_until(lambda: "and the end" in out.getvalue(), "the text to be drawn")
        live = out.getvalue()
        screen.show(_folded(_turn_events()), [])
    rows = [row for row in live.removeprefix("\x1b[?25l").splitlines() if "wide" in row]
    assert 1 < len(rows) <= SPOKEN_ROWS
    assert max(map(cell_len, rows)) <= 40
    assert "\x1b[2J" not in live
    assert "wide" not in out.getvalue()[out.getvalue().index("Let me see") :]


EVIL: Final = "\x1b]0;OWNED\x07\x9b2J"
HARMLESS: Final = "·]0;OWNED··2J"


@pytest.mark.parametrize("kept", [3, 4, 6, 7])
def test_screen_lets_no_control_characters_through(kept: int) -> None:
    """Not of a model's text, nor of a tool's name, running, failed or denied, nor of what a call told the model."""
    events = [
        *_turn_events()[:2],
        _event("model.completed", 1.0, step=0, text=f"text {EVIL}", stop_reason="tool_use"),
        _event("wave.started", 1.0, step=0, wave=0, calls=["0.0", "0.1"]),
        _event("tool.completed", 2.5, **_completed("0.0", EVIL, outcome="ToolDenied", is_error=True)),
        _event("tool.completed", 2.5, **_completed("0.1", f"a\n{EVIL}", outcome="ToolFailure", is_error=True)),
        _event("wave.completed", 2.5, step=0, wave=0, calls=["0.0", "0.1"]),
    ]
    calls = [{"call_id": each, "tool": EVIL, "is_error": True, "content": f"told {EVIL}"} for each in ("0.0", "0.1")]
    out, clock = io.StringIO(), SetClock()
    with Screen(Console(file=out, width=80), clock.monotonic) as screen:
        screen.show(_folded(events[:kept]), calls)
        clock.now_s += QUIET_S
        screen.show(_folded(events[:kept]), calls)
    assert f"text {HARMLESS}" in out.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out.getvalue())
    if kept == 4:
        assert f"waiting for {HARMLESS}, {HARMLESS}" in out.getvalue()
    if kept == 7:
        assert f"⊘ {HARMLESS} denied   ✗ a {HARMLESS} 12 ms" in out.getvalue()
        assert f"{HARMLESS}: told {HARMLESS}" in out.getvalue()


def test_fold_leaves_the_event_as_it_came() -> None:
    """It is printed verbatim with ``--json``."""
    event = _event("model.completed", 1.0, step=0, text=EVIL, stop_reason="end_turn")
    fold(Progress(), event)
    assert event["data"]["text"] == EVIL


def _turn(**of_call: object) -> dict[str, Any]:
    """A turn with one call, and control characters wherever they may stand."""
    call = {
        **_completed("0.0", f"a\n{EVIL}", outcome="ToolDenied", is_error=True),
        **{"arguments": {EVIL: EVIL}, "content": EVIL, "attempt": 1, "step": 0, "wave": 0},
        **{"started_at": None, "finished_at": None, "child_turn_id": "child-1"},
        **of_call,
    }
    usage = dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), 0)
    at = "2026-01-01T00:00:00Z"
    return {
        **{"id": "t", "status": "failed", "stop_reason": EVIL, "agent": EVIL, "session_id": EVIL, "decision": EVIL},
        **{"metadata": {EVIL: EVIL}, "created_at": at, "started_at": None, "finished_at": None},
        "usage": {**usage, "steps": 1, "tool_calls": 0, "dollars": 0.0},
        "budget": {"max_steps": 6, "max_tool_calls": 6, "max_dollars": 1.0, "timeout_s": 60.0, "max_tokens": None},
        **{"calls": [call], "input": EVIL, "output_text": EVIL, "citations": [{"id": EVIL, "title": f"x{EVIL}"}]},
        **{"error": {"code": "internal", "message": EVIL}, "forked_from": {"turn_id": EVIL, "step": 1}},
        "parent": {"turn_id": EVIL, "call_id": "2.1"},
        "required_actions": [{"call_id": "0.0", "tool": EVIL, "arguments": {EVIL: EVIL}}],
        "scores": [{"judge": EVIL, "at": at, "score": 1.0, "reason": EVIL, "error": None}],
        **{"context": [EVIL], "messages": [{"role": "user", "content": [{"type": EVIL}]}]},
    }


def test_page_lets_no_control_characters_through() -> None:
    """Wherever they stand in the turn or its events."""
    turn = _turn()
    said = _event("model.completed", 1.0, step=0, text=EVIL, usage={})
    page = TurnPage(100, UNICODE_MARKS)
    drawn = "\n".join(line.plain for line in (*page.draw(turn, [said]), *page.messages(turn)))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", drawn)
    assert f"0.0  a {HARMLESS} " in drawn
    assert "  forked    from step 1 of " in drawn
    assert "  asked by  call 2.1 of " in drawn
    assert "           is the turn child-1" in drawn


@pytest.mark.parametrize("text", ["承知しました。" * 40, "はい 承知 " * 40], ids=["one word", "words"])
def test_rows_fit_though_a_character_takes_two_columns(text: str) -> None:
    """What the model said and was told; a terminal would break longer rows itself, without their indent."""
    page = TurnPage(61, UNICODE_MARKS)
    drawn = [line.plain for line in page.draw({**_turn(content=text), "input": text, "metadata": {"a": text}}, [])]
    told = _shown(_turn_events(), [{"call_id": "0.1", "tool": "track", "is_error": True, "content": text}], width=61)
    rows = [*drawn, *told.splitlines()]
    assert max(map(cell_len, rows)) <= 61
    assert sum(row.count("承知") for row in drawn) > 40


@pytest.mark.parametrize("marks", [UNICODE_MARKS, ASCII_MARKS], ids=["signs", "words"])
def test_page_shortens_arguments(marks: Marks) -> None:
    """Their beginning stays, though there is no space in them; the row fits, however wide the mark is."""
    drawn = [line.plain for line in TurnPage(100, marks).draw(_turn(arguments={"url": "x" * 200}), [])]
    (call,) = (line for line in drawn if " 0.0  a " in line)
    assert re.search(r' \{"url":"x{20,}…$', call)
    assert len(call) <= 100


def test_page_tells_what_a_person_changed() -> None:
    """A call that ran with other arguments than the model's has both; one that was only approved has its own."""
    asked = _event("approval.requested", 1.0, call_id="0.0", tool="a", arguments={"cents": 500})
    approved = _event("approval.resolved", 2.0, call_id="0.0", decision="approve")
    edited = _event("approval.resolved", 2.0, call_id="0.0", decision="approve", arguments={"cents": 5})
    pages = [
        "\n".join(
            line.plain for line in TurnPage(100, UNICODE_MARKS).draw(_turn(arguments={"cents": 5}), [asked, said])
        )
        for said in (approved, edited)
    ]
    assert ['           changed by a person; the model gave {"cents":500}' in page for page in pages] == [False, True]
    assert '{"cents":5}' in pages[1]


def test_page_shortens_what_the_model_gave() -> None:
    """Its beginning stays beside what a person made of it, though there is no space in it; the row fits."""
    asked = _event("approval.requested", 1.0, call_id="0.0", tool="a", arguments={"url": "x" * 200})
    edited = _event("approval.resolved", 2.0, call_id="0.0", decision="approve", arguments={"url": "y"})
    drawn = [line.plain for line in TurnPage(80, UNICODE_MARKS).draw(_turn(arguments={"url": "y"}), [asked, edited])]
    (told,) = (line for line in drawn if "changed by a person" in line)
    assert re.fullmatch(r' {11}changed by a person; the model gave \{"url":"x{20,}…', told)
    assert len(told) == 80


def test_screen_in_a_pipe_is_silent_about_pieces() -> None:
    """A pipe gets whole lines only."""
    assert _shown([*_turn_events()[:2], _delta("Let me"), *_turn_events()[2:]]) == _shown(_turn_events())


def test_lines_name_every_outcome() -> None:
    """Denied, timed out and failed calls can be told apart without colours."""
    cells = tuple(
        CallCell(call_id=f"0.{n}", tool=kind, outcome=kind, is_error=True, elapsed_ms=1500)
        for n, kind in enumerate(["ToolDenied", "ToolTimeout", "ToolFailure"])
    )
    wave = WaveLine(step=0, wave=0, calls=cells, elapsed_s=2.0)
    drawn = draw(wave, width=100, marks=ASCII_MARKS).plain
    for told in ("DENIED ToolDenied denied", "FAILED ToolTimeout timeout after 1.50 s", "FAILED ToolFailure 1.50 s"):
        assert told in drawn


def test_line_of_a_call_whose_end_nobody_saw_has_no_time() -> None:
    """It ran for as long as its wave did, if not longer."""
    doubt = CallCell(call_id="0.0", tool="refund", outcome="ToolFailure", is_error=True)
    wave = WaveLine(step=0, wave=0, calls=(doubt,), elapsed_s=2.0)
    assert draw(wave, width=100, marks=ASCII_MARKS).plain.split() == ["wave", "FAILED", "refund", "2.00", "s"]


@pytest.mark.parametrize(
    "said",
    ["word " * 80, "承知しました。" * 20, f"https://example.org/{'a' * 80}"],
    ids=["words", "Japanese", "a link"],
)
def test_lines_shorten_what_the_model_says(said: str) -> None:
    """A long text beside tool calls does not wrap; the answer itself is printed elsewhere."""
    drawn = draw(ModelLine(step=0, text=said, elapsed_s=1.0), width=80, marks=UNICODE_MARKS).plain
    assert cell_len(drawn) <= 80
    assert said[:20] in drawn


def test_marks_follow_the_encoding() -> None:
    """An output that cannot carry the signs gets words."""
    assert marks_for("utf-8") is UNICODE_MARKS
    assert marks_for("ascii") is ASCII_MARKS


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0123, "12 ms"),
        (0.9996, "1.00 s"),
        (61.0, "61.00 s"),
        (99.999, "1 min 40 s"),
        (119.7, "2 min 0 s"),
        (125, "2 min 5 s"),
    ],
)
def test_duration_reads_like_a_clock(seconds: float, text: str) -> None:
    """Milliseconds below a second, then seconds, then minutes."""
    assert duration(seconds) == text


def test_totals_count_steps_calls_waves_tokens_and_dollars() -> None:
    """One line says what a turn came to, and why it stopped if it did not complete."""
    usage: dict[str, Any] = dict.fromkeys(
        ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), 1_000
    )
    usage |= {"steps": 2, "tool_calls": 3, "dollars": 0.0123}
    calls = [{"step": 0, "wave": 0}, {"step": 0, "wave": 0}, {"step": 1, "wave": 0}]
    turn = {"status": "incomplete", "stop_reason": "deadline", "usage": usage, "calls": calls}
    assert totals(turn, 3.6) == "incomplete (deadline) in 3.60 s: 2 steps, 3 calls, 2 waves, 4,000 tokens, $0.0123"


@pytest.mark.parametrize(
    ("score", "line"),
    [
        ({"at": None, "score": None, "reason": "", "error": None}, "brief  due"),
        ({"at": "now", "score": 0.5, "reason": "so so", "error": None}, "brief  0.50  so so"),
        ({"at": "now", "score": 1.0, "reason": "", "error": None}, "brief  1.00"),
        ({"at": "now", "score": None, "reason": "", "error": "no"}, "brief  none: no"),
    ],
)
def test_score_is_a_line(score: dict[str, Any], line: str) -> None:
    """Due, given, given without a reason, or given up."""
    assert score_line({"judge": "brief", **score}) == line


def test_agents_fit_the_width() -> None:
    """Whose tools are too many ends in an ellipsis; what would move a cursor is shown."""
    many = [{"name": f"tool_{number}"} for number in range(20)]
    agents: list[dict[str, Any]] = [
        {"name": "clerk", "model": "claude-sonnet-5-5", "tools": many},
        {"name": "echo\x1b[31m", "model": "scripted:" + "x" * 40, "tools": []},
    ]
    head, clerk, echo = (line.plain for line in catalogue_table(agents, 80))
    assert head.split() == ["agent", "model", "tools"]
    assert clerk.split()[:4] == ["clerk", "claude-sonnet-5-5", "tool_0,", "tool_1,"]
    assert (clerk[-1], len(clerk)) == ("…", 80)
    assert echo.split() == ["echo·[31m", "scripted:" + "x" * 22 + "…", "none"]


def test_status_alone_has_its_colour_in_a_table() -> None:
    """What was asked may say the same word."""
    at, tokens = "2026-01-01T00:00:00.000000Z", ("input", "output", "cache_read", "cache_write")
    usage = {"steps": 1, "tool_calls": 0, **{f"{kind}_tokens": 0 for kind in tokens}}
    turn = {"id": "t", "created_at": at, "status": "running", "agent": "a", "input": "is it running now?"}
    _, line = turn_table([{**turn, "usage": usage}], datetime.fromisoformat(at), 100)
    assert [(line.plain[span.start : span.end], span.style) for span in line.spans] == [("running", "yellow")]
    assert line.plain.index("running") == line.spans[0].start
