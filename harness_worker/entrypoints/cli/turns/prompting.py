"""Asks the person at the terminal about a turn's calls, or says how to answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import typer
from rich.console import Console

from harness_worker.client.client import GatewayClient, RequestRefused
from harness_worker.entrypoints.cli.turns.decisions import decide
from harness_worker.entrypoints.plain import plain
from harness_worker.entrypoints.view.questions import asked_of, questions
from harness_worker.wire import JsonObject

if TYPE_CHECKING:
    from harness_worker.ports import Clock

OnWaiting: TypeAlias = Callable[[GatewayClient, JsonObject], None]
"""Called with a turn that waits for a person."""

_TOO_LATE: Final = frozenset({"stale_input", "turn_finished"})
"""The codes by which an answer is refused because somebody else was faster, or the question has expired."""


def prompting(console: Console, clock: Clock, *, ask: bool, options: str) -> OnWaiting:
    """Ask on the terminal, if allowed; otherwise say once on the console how to answer, and go on waiting.

    ``options`` are those by which the command that answers finds the stack, each after a space.

    While the gateway is away, an answer is sent again, paced by ``clock``; the first that arrives counts.
    """
    is_asked = ask and console.is_terminal and sys.stdin.isatty()
    return _asker(console, clock) if is_asked else _teller(console, options)


def _asker(console: Console, clock: Clock) -> OnWaiting:
    def ask(client: GatewayClient, turn: JsonObject) -> None:
        for action, question in zip(asked_of(turn), questions(turn), strict=True):
            console.print(f"  {question}", soft_wrap=True)
            try:
                agreed = typer.confirm("  Run it?", err=True)
            except typer.Abort:  # raised on Ctrl-C and Ctrl-D
                raise KeyboardInterrupt from None
            gateway, decision = client.with_patience(clock=clock), "approve" if agreed else "deny"
            try:
                decide(gateway, action["turn_id"], action["call_id"], decision)
            except RequestRefused as refused:
                if refused.code not in _TOO_LATE:
                    raise
                console.print(f"  {plain(refused.detail)}", style="yellow")

    return ask


def _teller(console: Console, options: str) -> OnWaiting:
    known: set[tuple[str, str]] = set()

    def tell(_client: GatewayClient, turn: JsonObject) -> None:
        named = [(action["turn_id"], action["call_id"]) for action in asked_of(turn)]
        new = {name: question for name, question in zip(named, questions(turn), strict=True) if name not in known}
        known.update(new)
        for question in new.values():
            console.print(f"  waiting for approval: {question}", soft_wrap=True)
        for turn_id in dict.fromkeys(turn_id for turn_id, _ in new):
            told = f"  harness turns approve {turn_id}{options}, or deny"
            console.print(told, style="dim", soft_wrap=True)

    return tell
