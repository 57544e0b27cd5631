"""Posting one turn and following it to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from harness_worker.adapters.clock import SystemClock
from harness_worker.client.client import GatewayClient, RequestRefused
from harness_worker.entrypoints.cli.turns.prompting import OnWaiting
from harness_worker.entrypoints.plain import plain
from harness_worker.entrypoints.view.lines import totals
from harness_worker.entrypoints.view.screen import Screen
from harness_worker.entrypoints.view.watch import Watcher
from harness_worker.errors import ConfigError
from harness_worker.wire import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedTurn:
    """A turn that ended, and how long it took from here, in seconds."""

    turn: JsonObject
    elapsed_s: float

    @property
    def is_complete(self) -> bool:
        """Whether it ended with an answer."""
        return self.turn["status"] == "completed"


def ask(
    client: GatewayClient,
    body: Mapping[str, Any],
    console: Console,
    on_event: Callable[[JsonObject], None] | None = None,
    on_waiting: OnWaiting | None = None,
) -> FollowedTurn:
    """Post a turn and draw it on ``console`` until it ends, with a last line of totals. Ctrl-C cancels the turn.

    Args:
        client: The gateway to post it to.
        body: The request; keys that are ``None`` are left out, and a missing ``agent`` means the only one there is.
        console: Where to draw progress.
        on_event: Receives each event once, in order.
        on_waiting: Called whenever the turn waits for a person.

    Raises:
        ConfigError: There is no such agent; the message lists the existing ones.
    """
    clock = SystemClock()
    started_s = clock.monotonic()
    turn_id = _create(client, body)["id"]
    try:
        with Screen(console, clock.monotonic) as screen:
            turn = Watcher(client, clock, on_waiting).follow(turn_id, screen, on_event)
    except KeyboardInterrupt:
        client.cancel(turn_id)
        console.print(f"cancelled turn {turn_id}")
        raise
    answered = FollowedTurn(turn=turn, elapsed_s=clock.monotonic() - started_s)
    _conclude(answered, console)
    return answered


def _conclude(answered: FollowedTurn, console: Console) -> None:
    console.print(f"  {totals(answered.turn, answered.elapsed_s)}", style="bold", soft_wrap=True)
    error = answered.turn["error"]
    if error:
        console.print(f"  {error['code']}: {plain(error['message'])}", style="red", soft_wrap=True)


def _create(client: GatewayClient, body: Mapping[str, Any]) -> JsonObject:
    chosen = body if body["agent"] else {**body, "agent": _only_agent(client)}
    try:
        return client.create_turn(**chosen)
    except RequestRefused as refused:
        if refused.code != "unknown_agent":
            raise
        raise ConfigError(f"there is no agent {chosen['agent']}; {there_are(agents_of(client))}") from refused


def _only_agent(client: GatewayClient) -> str:
    names = agents_of(client)
    if len(names) != 1:
        raise ConfigError(say_which(names))
    return names[0]


def agents_of(client: GatewayClient) -> list[str]:
    """The names of the agents that a stack serves."""
    return sorted(agent["name"] for agent in client.agents())


def say_which(names: Sequence[str]) -> str:
    """An error message for somebody who named none of several agents."""
    return f"say which agent with --agent; {there_are(names)}" if names else there_are(names)


def there_are(names: Sequence[str]) -> str:
    """A sentence that lists them, for an error message."""
    if not names:
        return "the stack serves no agent: its app has none, or no coordinator runs, which `harness doctor` tells"
    return f"there are: {', '.join(names)}"
