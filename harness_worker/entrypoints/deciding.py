"""Answering turns that wait for a person."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from harness_worker.entrypoints.client import GatewayClient, JsonObject
from harness_worker.entrypoints.view.plain import plain
from harness_worker.errors import ConfigError, HarnessError


def decide(
    client: GatewayClient,
    turn_id: str,
    call_id: str | None,
    decision: Literal["approve", "deny"],
    **said: object,
) -> JsonObject:
    """Approve or deny one call, or all that wait.

    Args:
        client: The gateway.
        turn_id: Which turn.
        call_id: Which call; ``None``: each that waits.
        decision: What to say of it.
        **said: ``reason`` and ``arguments``; what is ``None`` is left out.

    Returns:
        The turn as it then is.

    Raises:
        HarnessError: Nothing waits.
        ConfigError: Several calls wait, and one set of arguments was given.
        RequestRefused: Nobody waits for that, or the arguments do not fit.
    """
    turn = client.turn(turn_id)
    waiting = [action["call_id"] for action in turn["required_actions"]] if call_id is None else [call_id]
    given = {name: value for name, value in said.items() if value is not None}
    if not waiting:
        raise HarnessError(f"turn {turn_id} is {turn['status']}: none of its calls waits for anybody")
    if "arguments" in given and len(waiting) > 1:
        raise ConfigError(f"{len(waiting)} calls wait ({', '.join(waiting)}): say which one gets the arguments")
    for each in waiting:
        turn = client.add_input(turn_id, {"call_id": each, "decision": decision, **given})
    return turn


def arguments_from(text: str | None) -> Mapping[str, Any] | None:
    """Arguments as typed on a command line.

    Raises:
        ConfigError: They are no JSON object.
    """
    if text is None:
        return None
    try:
        found: object = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f'--arguments {text}: write a JSON object, such as \'{{"order_id": "1042"}}\'')
    return cast("Mapping[str, Any]", found)


def questions(turn: Mapping[str, Any]) -> Sequence[str]:
    """What a turn waits for, a line per call: ``0.1 refund {"order_id": "1042"}``."""
    actions: Sequence[JsonObject] = turn["required_actions"]
    return [
        plain(f"{action['call_id']} {action['tool']} {json.dumps(action['arguments'], ensure_ascii=False)}")
        for action in actions
    ]
