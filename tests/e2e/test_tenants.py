"""A tenant that posts very much, beside one that posts little; turns are inserted as a gateway would for their keys."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from statistics import quantiles

import pytest

from harness_worker.bootstrap.engine import new_id
from harness_worker.bootstrap.fleet import Fleet, make_fleet
from harness_worker.config import load_settings
from harness_worker.core.budget import BudgetLimits
from harness_worker.core.records import Turn
from harness_worker.entrypoints.stack import open_stack
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import TurnStatus
from tests.apps.e2e.journal import DIRECTORY_VARIABLE, scripts_file
from tests.e2e.conftest import APP
from tests.e2e.outsider import Step, add_script, call
from tests.stacks import ROOT

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]

STEPS: tuple[Step, ...] = ([call("look", n=0, s=0.1), call("look", n=1, s=0.1), call("put", n=2, s=0.1)], "done")
QUIET = 10
NOISY = 10 * QUIET
SHARE = 4
END_TIMEOUT_S = 120.0


class Tenant:
    """Adds turns of one tenant, as a gateway would.

    Args:
        fleet: What the tenants share.
        name: The tenant's name.
        script: The replies of the turns' models.
    """

    def __init__(self, fleet: Fleet, name: str, script: str) -> None:
        self._fleet = fleet
        self._name = name
        self._script = script

    def post(self) -> str:
        """Add a turn; returns its id."""
        turn = Turn(
            id=new_id(),
            tenant=self._name,
            session_id=new_id(),
            agent="worker",
            status=TurnStatus.QUEUED,
            input="go",
            priority="interactive",
            budget=BudgetLimits(),
            metadata={"script": self._script},
        )
        self._fleet.store.insert_turn(turn)
        self._fleet.dispatcher.advance(turn.id, turn.priority)
        return turn.id

    def run(self) -> Turn:
        """Add a turn and wait for its end."""
        return self.end(self.post())

    def end(self, turn_id: str) -> Turn:
        """The turn once it is over."""
        turn = wait_until(lambda: self._ended(turn_id), f"turn {turn_id} to end", END_TIMEOUT_S)
        assert turn.status is TurnStatus.COMPLETED, turn
        return turn

    def ended(self, turn_ids: Sequence[str]) -> int:
        """How many of these are over."""
        return sum(self._ended(turn_id) is not None for turn_id in turn_ids)

    def _ended(self, turn_id: str) -> Turn | None:
        loaded = self._fleet.store.load(turn_id)
        return loaded.turn if loaded is not None and loaded.turn.status.is_final else None


@pytest.fixture
def tenant_of(
    new_database: Callable[[], dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[Callable[[str], Tenant]]:
    """Tenants of a stack with few workers."""
    scripts_file(tmp_path).touch()
    monkeypatch.chdir(ROOT)
    script = add_script(tmp_path, STEPS)
    env = {**new_database(), DIRECTORY_VARIABLE: str(tmp_path), "HARNESS_TENANT_TURNS": str(SHARE)}
    with open_stack(home=tmp_path / "home", app=APP, coordinators=SHARE + 2, tools=2, env=env) as stack:
        urls = {"redis_url": stack.redis_url, "database_url": stack.database_url}
        fleet = make_fleet(load_settings(**urls, broker_url=env.get("HARNESS_BROKER_URL")))
        yield lambda name: Tenant(fleet, name, script)
        fleet.close()


def p95_wait_s(turns: Sequence[Turn]) -> float:
    """The 95th percentile of how long these turns waited for their start, in seconds."""
    return quantiles([(turn.started_at or 0.0) - turn.created_at for turn in turns], n=20)[-1]


def test_noisy_tenant_does_not_starve_a_quiet_one(tenant_of: Callable[[str], Tenant]) -> None:
    """One tenant posts ten times as much: the other's turns overtake its turns, and all turns end."""
    noisy, quiet = tenant_of("noisy"), tenant_of("quiet")
    alone = [quiet.run() for _ in range(QUIET)]
    posted = [noisy.post() for _ in range(NOISY)]
    beside = [quiet.run() for _ in range(QUIET)]
    overtaken = NOISY - noisy.ended(posted)
    print(f"quiet p95 queue wait: {p95_wait_s(alone):.3f} s alone, {p95_wait_s(beside):.3f} s beside")  # noqa: T201
    print(f"{overtaken} of {NOISY} noisy turns were still to end when {QUIET} quiet ones had")  # noqa: T201
    assert overtaken > NOISY / 4, "the quiet tenant's turns waited for the noisy one's"
    ended = [noisy.end(turn_id) for turn_id in posted]
    assert most_at_once(ended) <= SHARE + 2, "as many may overshoot as were claimed at the same time"


def most_at_once(turns: Sequence[Turn]) -> int:
    """The greatest number of these turns that ran at the same time."""
    begun = [(turn.started_at or 0.0, 1) for turn in turns]
    over = [(turn.finished_at or 0.0, -1) for turn in turns]
    running = most = 0
    for _, change in sorted([*begun, *over]):
        running += change
        most = max(most, running)
    return most
