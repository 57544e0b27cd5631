"""Turns of a fleet as traces: each turn is exported once, whichever coordinator ends it."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from harness_worker.core.tracing.trace import trace_id_of, turn_span_id
from harness_worker.entrypoints.stack import open_stack
from harness_worker.testing.waiting import wait_until
from tests.apps.e2e.journal import DIRECTORY_VARIABLE, scripts_file
from tests.collector import Collector, Taken, collecting
from tests.e2e.outsider import Outsider, Step, call
from tests.e2e.workers import APP, worker
from tests.stacks import ROOT

pytestmark = pytest.mark.one_database("sqlite")

CALLER = f"00-{10:032x}-{11:016x}-01"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
STEPS: tuple[Step, ...] = (
    [call("meet", who="a", parties=2), call("meet", who="b", parties=2), call("put", n=1)],
    [call("fail", how="tool_error")],
    "done",
)
TREE = [
    ("invoke_agent worker", False),
    *[("chat", False)] * 3,
    *[("execute_tool meet", False)] * 2,
    ("execute_tool put", False),
    ("execute_tool fail", True),
]


@pytest.fixture(scope="module")
def collector() -> Generator[Collector]:
    """A server that collects traces."""
    with collecting() as running:
        yield running


@pytest.fixture(scope="module")
def traced(
    collector: Collector,
    database: str,
    new_database: Callable[[], dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[Outsider]:
    """A client of a stack that exports traces."""
    directory = tmp_path_factory.mktemp(f"traces-{database}")
    scripts_file(directory).touch()
    env = {**new_database(), DIRECTORY_VARIABLE: str(directory), ENDPOINT: collector.url}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        with open_stack(home=directory / "home", app=APP, coordinators=2, tools=3, env=env) as stack:
            client = Outsider(stack, directory)
            yield client
            client.http.close()


def shape(spans: list[Taken]) -> list[tuple[str, bool]]:
    """The structure of a trace, without the model's name."""
    return [(span.name.partition(" scripted:")[0], span.is_error) for span in spans]


def test_turn_is_a_tree_of_what_it_did(traced: Outsider, collector: Collector) -> None:
    """All spans lie within the turn's, reads that ran together overlap, and calls have the ids that the API shows."""
    turn = traced.run(*STEPS)
    spans = collector.trace(turn["id"])
    assert shape(spans) == TREE
    first, *parts = spans
    assert {span.parent_id for span in parts} == {turn_span_id(turn["id"])}
    assert all(first.start_ns <= span.start_ns <= span.end_ns <= first.end_ns for span in parts)
    reads = [span for span in parts if span.name == "execute_tool meet"]
    assert max(span.start_ns for span in reads) < min(span.end_ns for span in reads)
    assert [span.attributes["harness.call_id"] for span in parts[3:]] == [each["call_id"] for each in turn["calls"]]
    assert first.attributes["gen_ai.conversation.id"] == turn["session_id"]


@pytest.mark.parametrize("path", ["/v1/turns", "/v1/responses", "/v1/chat/completions"])
def test_turn_of_a_caller_is_told_below_its_span(traced: Outsider, collector: Collector, path: str) -> None:
    """However the turn is posted, it is a child of the caller's span; an invalid ``traceparent`` is ignored."""
    body = {"metadata": traced.body("done")["metadata"]}
    said = {"input": "go", "agent": "worker"} if path == "/v1/turns" else {"model": "worker"}
    words = {"messages": [{"role": "user", "content": "go"}]} if "chat" in path else {"input": "go"}
    for header, expected in [(CALLER, (0xA, 0xB)), (f"{CALLER}x", None)]:
        answer = traced.http.post(path, json={**body, **said, **words}, headers={"traceparent": header})
        assert answer.is_success, answer.text
        turn_id = answer.json()["id"]
        traced.end(turn_id)
        first = collector.trace(turn_id)[0]
        assert (first.trace_id, first.parent_id) == (
            expected or (trace_id_of(first.attributes["harness.turn_id"]), None)
        )


def test_coordinators_tell_each_turn_once(
    traced: Outsider, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coordinators share the export; one that is stopped first exports the turns that it ended."""
    monkeypatch.setenv(ENDPOINT, collector.url)
    with worker(traced, "second", "coordinator", "--concurrency", "2") as second:
        second.await_ready()
        ids: list[str] = []

        def have_shared() -> bool:
            ids.append(traced.run("done", agent="modest")["id"])
            told = second.log.read_text()
            return len({turn_id in told for turn_id in ids}) == 2

        wait_until(have_shared, "both to have driven a turn", 60)
        ids += [traced.post("done", agent="modest") for _ in range(14)]
        for turn_id in ids:
            traced.end(turn_id)
        assert second.stop() == 0
    traces = [collector.trace(turn_id) for turn_id in ids]
    assert [shape(spans) for spans in traces] == [[("invoke_agent modest", False), ("chat", False)]] * len(ids)
    assert len({spans[0].resource["service.instance.id"] for spans in traces}) == 2


def test_collector_that_hangs_keeps_no_worker(traced: Outsider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns still end, and a worker that is told to stop exits in time."""
    with collecting() as hanging:
        hanging.is_hanging = True
        monkeypatch.setenv(ENDPOINT, hanging.url)
        with worker(traced, "third", "coordinator", "--concurrency", "2") as third:
            third.await_ready()
            while not hanging.posts:
                assert traced.run("done", agent="modest")["status"] == "completed"
            assert third.stop() == 0
        assert "were not sent before this process ended" in third.log.read_text()
