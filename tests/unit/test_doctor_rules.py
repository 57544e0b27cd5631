"""What the doctor makes of what it sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from api_gateway.config import Settings as GatewaySettings
from harness_worker.config import Settings
from harness_worker.entrypoints.doctor.clocks import judge_clocks, skew_s
from harness_worker.entrypoints.doctor.database import PublishedAgent, PublishedTool, judge_postgres
from harness_worker.entrypoints.doctor.finding import State
from harness_worker.entrypoints.doctor.variables import check_variables, refused_by_gateway
from harness_worker.entrypoints.doctor.workers import ANSWERS_S, Worker, answering, check_catalogue, check_workers

TOOLS = Worker(name="tools-7@host", tasks=frozenset({"tool.a"}), queues=("tools",))


def tool(name: str, queue: str | None = "tools") -> PublishedTool:
    """A tool of the catalogue."""
    return PublishedTool(name=name, queue=queue)


def test_variables_of_the_gateway_are_known() -> None:
    """Though the worker has no such settings."""
    only = GatewaySettings.model_fields.keys() - Settings.model_fields.keys()
    given = {f"HARNESS_{name.upper()}": "x" for name in only}
    assert [finding.state for finding in check_variables(given)] == [State.OK]


def test_variables_unknown_get_the_nearest_name() -> None:
    """Each unknown variable is a warning of its own; others' variables are not looked at."""
    given = {"HARNESS_REDIS_URL": "x", "HARNESS_DATABSE_URL": "y", "HARNESS_ZZZ": "z", "PATH": "p"}
    found = list(check_variables(given))
    assert [finding.state for finding in found] == [State.WARNING, State.WARNING]
    assert found[0].mend == "did you mean HARNESS_DATABASE_URL?"
    assert "unset it" in found[1].mend


def test_variables_that_are_refused_are_wrong_each() -> None:
    """Beside those that are unknown; nothing is then said to be well."""
    found = list(check_variables({"HARNESS_ZZZ": "z", "HARNESS_TENANT_QUEUE": "0"}, ["a", "b"]))
    assert [finding.state for finding in found] == [State.WARNING, State.WRONG, State.WRONG]
    assert [finding.said for finding in found[1:]] == ["a", "b"]


def test_variables_are_refused_by_the_gateways_own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its own that is wrong; neither a database nor a Redis need be named for that."""
    for name in ("DATABASE_URL", "REDIS_URL", "BROKER_URL"):
        monkeypatch.delenv(f"HARNESS_{name}", raising=False)
    assert refused_by_gateway() == ()
    monkeypatch.setenv("HARNESS_TENANT_QUEUE", "0")
    monkeypatch.setenv("HARNESS_TENANT_DOLLARS", "abc")
    assert {said.partition("=")[0] for said in refused_by_gateway()} == {
        "HARNESS_TENANT_QUEUE",
        "HARNESS_TENANT_DOLLARS",
    }


@pytest.mark.parametrize(("there", "ahead_s"), [(99.0, -1.0), (100.5, 0.0), (103.5, 0.0), (104.5, 0.5)])
def test_way_to_a_clock_is_no_skew(there: float, ahead_s: float) -> None:
    """However long it takes, because this host is busy: the clock was read at some moment of it."""
    times = iter([100.0, 104.0])
    assert skew_s(lambda: there, now=lambda: next(times)) == ahead_s


@pytest.mark.parametrize(
    ("version", "state"),
    [("17.5 (Debian 17.5-1.pgdg12+1)", State.OK), ("19beta1", State.OK), ("20devel", State.OK), ("12.22", State.WRONG)],
)
def test_postgres_is_judged_by_its_major_version(version: str, state: State) -> None:
    """Those that are not released yet say it in other words."""
    assert judge_postgres(version, "postgresql://host/db").state is state


def test_clocks_more_than_a_second_apart_are_a_warning() -> None:
    """Any two of them count, also two that are not this host's."""
    assert [finding.state for finding in judge_clocks({"Redis": 0.4, "the database": -0.5})] == [State.OK]
    (apart,) = judge_clocks({"Redis": 0.6, "the database": -0.6})
    assert apart.state is State.WARNING
    assert "1.2 s apart" in apart.said
    assert list(judge_clocks({})) == []


class Control:
    """Celery's remote control of workers, each of which needs so many seconds for an answer."""

    def __init__(self, needs_s: Mapping[str, float]) -> None:
        self.needs_s = needs_s
        self.asked_s: set[float] = set()

    def inspect(self, names: Sequence[str] | None = None, *, timeout: float, limit: int | None = None) -> Control:
        """See ``celery.app.control.Control.inspect``."""
        assert limit == (None if names is None else len(names))
        self.asked_s.add(timeout)
        self.answers = [name for name, needs_s in self.needs_s.items() if needs_s < timeout]
        return self

    def ping(self) -> dict[str, Any] | None:
        """Who answers."""
        return {name: {"ok": "pong"} for name in self.answers} or None

    def registered(self) -> dict[str, Any] | None:
        """What they run."""
        return {name: [f"{name}.task"] for name in self.answers} or None

    def active_queues(self) -> dict[str, Any] | None:
        """What they take."""
        return {name: [{"name": "queue"}] for name in self.answers} or None


def test_worker_that_is_busy_is_asked_again() -> None:
    """It may need more than a second for its answer, but is not missing for that."""
    control = Control({"coordinator@host": 0.1, "tools@host": 1.5})
    assert [(each.name, each.tasks, each.queues) for each in answering(control.inspect)] == [
        (name, frozenset({f"{name}.task"}), ("queue",)) for name in control.needs_s
    ]


def test_workers_that_all_answer_are_asked_once() -> None:
    """Whoever else has workers on this broker."""
    control = Control({"celery@host": 0.1, "coordinator@host": 0.1, "tools@host": 0.1})
    assert [each.name for each in answering(control.inspect)] == [*control.needs_s]
    assert control.asked_s == {ANSWERS_S[0]}


def test_workers_of_both_roles_are_needed() -> None:
    """A role that nobody fills is wrong."""
    found = list(check_workers([TOOLS], " --home h"))
    assert [finding.state for finding in found] == [State.WRONG, State.OK]
    assert found[0].mend == "start one: harness worker --role coordinator --app package.module:registry --home h"


def test_workers_of_turns_take_every_queue_of_them() -> None:
    """Coordinators that leave a queue to others, of whom there are none, are not enough."""
    one = Worker(name="coordinator@host", tasks=frozenset(), queues=("turns.interactive",))
    _, left, _ = check_workers([one, TOOLS], "")
    assert (left.state, left.said) == (State.WRONG, "nobody takes the queue turns.batch")
    assert left.mend.endswith("--role coordinator --app package.module:registry --queues turns.batch")
    two = Worker(name="coordinator-2@host", tasks=frozenset(), queues=("turns.batch",))
    assert [finding.state for finding in check_workers([one, two, TOOLS], "")] == [State.OK, State.OK]


def test_catalogue_needs_agents_and_somebody_for_each_tool() -> None:
    """A tool that nobody runs is named with its agent; workers that could not be asked are not blamed."""
    agent = PublishedAgent(name="x", app="m:r", tools=(tool("a"), tool("b")))
    (missing,) = check_catalogue([agent], [TOOLS], "")
    assert missing.state is State.WRONG
    assert missing.said == "nobody serves b of agent x"
    assert [finding.state for finding in check_catalogue([agent], None, "")] == [State.OK]
    assert [finding.state for finding in check_catalogue([], [TOOLS], "")] == [State.WRONG]


def test_catalogue_needs_somebody_for_each_tools_queue() -> None:
    """Workers that have a tool and do not take its queue leave its calls; a row of old tells no queue."""
    other = Worker(name="tools-2@host", tasks=frozenset({"tool.b"}), queues=("gpu",))
    agent = PublishedAgent(name="x", app="m:r", tools=(tool("a", "gpu"), tool("b", "gpu")))
    (idle,) = check_catalogue([agent], [TOOLS, other], "")
    assert (idle.state, idle.said) == (State.WRONG, "nobody takes the calls of a (queue gpu) of agent x")
    assert idle.mend == "start a worker: harness worker --role tools --app m:r --queues gpu"
    older = PublishedAgent(name="x", app="m:r", tools=(tool("a", None),))
    assert [finding.state for finding in check_catalogue([older], [TOOLS], "")] == [State.OK]
