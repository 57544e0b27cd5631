"""An application that has a Celery app of its own, whose tasks are asked for wherever its code runs in a worker."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from celery import Celery, shared_task
from celery.exceptions import TimeoutError as NoAnswerYet

from harness_worker import Effect, Hooks, Registry, Score, TurnResult
from harness_worker.core.registration.hooks import PostToolUse, TurnStart

app = Celery("fleet", broker=os.environ["FLEET_URL"], backend=os.environ["FLEET_URL"])
registry = Registry()


@shared_task(name="fleet.pay")
def pay(who: str) -> str:
    """Pay; nobody does in these tests."""
    return who


def ask(who: str) -> str:
    """Have the fleet pay ``who``, and wait a moment for its answer."""
    task: Any = pay
    try:
        return task.delay(who).get(timeout=0.05)
    except NoAnswerYet:
        return "asked"


class Asking(Hooks):
    """Asks for a task at each of two points."""

    def on_turn_start(self, event: TurnStart) -> None:  # noqa: ARG002 - a hook's signature
        """In a coordinator."""
        ask("turn start")

    def on_post_tool_use(self, event: PostToolUse) -> None:  # noqa: ARG002 - as above
        """In a tool process."""
        ask("post tool use")


@registry.tool(effect=Effect.NETWORK)
def order(who: str) -> str:
    """Have the fleet pay, twice."""
    with ThreadPoolExecutor() as pool:
        pool.submit(ask, f"{who} in a thread").result()
    return ask(who)


def judge(turn: TurnResult) -> Score:
    """Half a point."""
    return Score(0.5, ask("judge"))


registry.judge("judge", judge)
registry.agent(
    "clerk",
    model=f"scripted:{Path(__file__).with_name('fleet.jsonl')}",
    tools=[order],
    hooks=(Asking(),),
    judges=["judge"],
)
