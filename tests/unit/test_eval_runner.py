"""Asking cells: each once, whatever was asked before; how a sweep ends early."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from harness_worker.client.client import GatewayClient, RequestRefused
from harness_worker.entrypoints.cli.eval.cell_runner import Asking, CellRunner, run_cells
from harness_worker.errors import Stopped
from harness_worker.evaluation.cells import Cell
from harness_worker.evaluation.results import Found
from tests.unit.eval_kit import cell, score, turn

LOST = httpx2.ReadError("lost")


class Gateway:
    """A gateway that ends each turn at once, keeps keys until they are forgotten, and may lose answers.

    Args:
        ends: What turns are like besides, by their input.
    """

    def __init__(self, **ends: dict[str, Any]) -> None:
        self.ends = ends
        self.turns: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.keys: dict[str, dict[str, Any]] = {}
        self.lost_answers = 0
        self.refusal: httpx2.Response | None = None
        self.hangs: threading.Event | None = None
        self.client = GatewayClient("http://gateway", patience_s=0, transport=httpx2.MockTransport(self.answer))
        self._lock = threading.Lock()

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """One request."""
        if self.hangs is not None:
            self.hangs.wait(10.0)
        with self._lock:
            self.asked.append(request.method)
            if request.method == "POST":
                return self._post(json.loads(request.content), request.headers["Idempotency-Key"])
            if request.url.path == "/v1/turns":
                session = request.url.params["session_id"]
                found = [each for each in reversed(self.turns) if each["session_id"] == session]
                return httpx2.Response(200, json={"data": found, "next": None})
            (found,) = [each for each in self.turns if request.url.path == f"/v1/turns/{each['id']}"]
            parts = {"messages", "scores"} - set(request.url.params.get("include", "").split(","))
            return httpx2.Response(200, json={name: value for name, value in found.items() if name not in parts})

    def _post(self, body: dict[str, Any], key: str) -> httpx2.Response:
        if self.refusal is not None:
            return self.refusal
        if key not in self.keys:
            self.keys[key] = {**turn(**self.ends.get(body["input"], {})), **body, "id": f"t{len(self.turns)}"}
            self.turns.append(self.keys[key])
        if self.lost_answers:
            self.lost_answers -= 1
            raise LOST
        return httpx2.Response(202, json=self.keys[key])

    def runner(
        self,
        *,
        goes_on: bool = False,
        timeout_s: float = 5.0,
        waits: list[str] | None = None,
        include: tuple[str, ...] = (),
    ) -> CellRunner:
        """Somebody who asks it."""
        told: list[str] = [] if waits is None else waits
        return CellRunner(
            self.client,
            Asking(
                timeout_s=timeout_s,
                goes_on=goes_on,
                include=include,
                on_waiting=lambda waiting: told.append(waiting["id"]),
            ),
        )


class Notes:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []

    def found(self, cell: Cell, found: Found) -> None:
        """One more."""
        assert found.turns
        self.cells.append(cell)

    def tick(self) -> None:
        """Nothing."""


@pytest.mark.parametrize("made", range(4))
@pytest.mark.parametrize("forgotten", [False, True])
def test_conversation_goes_on_where_it_was(made: int, forgotten: bool) -> None:
    """However far a dead process came, with keys or without: no turn is made twice, also if an answer is lost."""
    gateway, asked = Gateway(), cell(input=["one", "two", "three"])
    for number in range(made):
        gateway.client.create_turn(**asked.body(number), idempotency_key=asked.key(number))
    if forgotten:
        gateway.keys.clear()
    gateway.lost_answers = 1
    found = gateway.runner(goes_on=True).run(asked)
    assert [each["input"] for each in gateway.turns] == ["one", "two", "three"]
    assert [each["id"] for each in found.turns] == ["t0", "t1", "t2"]
    again = gateway.runner(goes_on=True).run(asked)
    assert (again, len(gateway.turns)) == (found, 3)


def test_case_that_was_edited_is_asked_anew() -> None:
    """It is another cell, though its name and the sweep's are the same."""
    gateway = Gateway()
    for text in ("one", "two"):
        gateway.runner(goes_on=True).run(cell(input=text))
    assert [each["input"] for each in gateway.turns] == ["one", "two"]


def test_conversation_ends_where_a_turn_is_not_completed() -> None:
    """What would follow would be about something else."""
    gateway = Gateway(two={"status": "incomplete", "stop_reason": "budget"})
    found = gateway.runner().run(cell(input=["one", "two", "three"]))
    assert [each["status"] for each in found.turns] == ["completed", "incomplete"]


@pytest.mark.parametrize(
    ("status", "is_the_cells"), [(413, True), (422, True), (401, False), (404, False), (500, False)]
)
def test_refusal_is_of_one_cell_or_of_all(status: int, is_the_cells: bool) -> None:
    """Too large a text is one case's failure; a missing key or agent is nobody's case."""
    gateway = Gateway()
    gateway.refusal = httpx2.Response(status, json={"code": "no", "title": "no", "detail": "because"})
    if is_the_cells:
        assert gateway.runner().run(cell()) == Found(turns=(), refused="because")
        return
    with pytest.raises(RequestRefused, match="because"):
        gateway.runner().run(cell())


@pytest.mark.parametrize("waits", [{"status": "requires_action"}, {"status": "running", "subagent_actions": ["x"]}])
def test_turn_that_does_not_end_is_waited_for_no_longer(waits: dict[str, Any]) -> None:
    """It is given as it is; who waits for a person, itself or below it, is told of, once."""
    waiting = {**waits, "stop_reason": None}
    gateway, told = Gateway(hi=waiting), list[str]()
    found = gateway.runner(timeout_s=0.2, waits=told).run(cell())
    assert (found.turns[0]["status"], told) == (waits["status"], ["t0"])


def test_judges_are_waited_for() -> None:
    """As long as a turn is; then it is given with the scores there are."""
    gateway = Gateway(hi={"scores": [score("a", 1.0), score("late", None, at=None)]})
    found = gateway.runner(timeout_s=0.2).run(cell())
    assert [each["at"] is None for each in found.turns[0]["scores"]] == [False, True]


@pytest.mark.parametrize(("include", "looks"), [((), 1), (("messages",), 2)])
def test_ended_turn_whose_judges_have_spoken_is_looked_at_again_only_for_more(
    include: tuple[str, ...], looks: int
) -> None:
    """A sweep is bound by its requests; the history of a turn, which may be long, is fetched once."""
    gateway = Gateway(hi={"scores": [score("a", 1.0)]})
    (last,) = gateway.runner(include=include).run(cell()).turns
    assert gateway.asked == ["POST", *["GET"] * looks]
    assert last["scores"][0]["score"] == 1.0
    assert ("messages" in last) is bool(include)


def test_run_cells_asks_each_once() -> None:
    """As many at once as allowed, each told once."""
    gateway, notes = Gateway(), Notes()
    cells = [cell(repeat=repeat) for repeat in range(1, 9)]
    run_cells(gateway.runner(), cells, notes, 3)
    assert Counter(each.repeat for each in notes.cells) == Counter(range(1, 9))
    assert len(gateway.turns) == 8


class Stopper(Notes):
    """Presses Ctrl-C once all threads are at work."""

    def __init__(self, at_work: Callable[[], bool]) -> None:
        super().__init__()
        self._at_work = at_work

    def tick(self) -> None:
        """Press it."""
        if self._at_work():
            raise KeyboardInterrupt


def test_ctrl_c_asks_nothing_more_and_waits_for_nothing() -> None:
    """Turns that run for ever keep nobody; cells that were not begun are not."""
    gateway = Gateway(hi={"status": "running", "stop_reason": None})
    runner = gateway.runner(timeout_s=20.0)
    with pytest.raises(KeyboardInterrupt):
        run_cells(runner, [cell(repeat=repeat) for repeat in range(1, 9)], Stopper(lambda: len(gateway.turns) == 2), 2)
    assert len(gateway.turns) == 2
    with pytest.raises(Stopped):
        runner.run(cell(repeat=9))
    assert len(gateway.turns) == 2


def test_ctrl_c_waits_for_no_gateway_that_hangs() -> None:
    """What a request in flight comes to is nobody's business any more."""
    gateway = Gateway()
    gateway.hangs = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        run_cells(gateway.runner(), [cell(repeat=repeat) for repeat in range(1, 4)], Stopper(lambda: True), 2)
    assert gateway.turns == []
    gateway.hangs.set()
