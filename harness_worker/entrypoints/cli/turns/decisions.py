"""Approves or denies the calls of turns that wait for a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, cast

from harness_worker.client.client import GatewayClient
from harness_worker.core.json_lines import parsed
from harness_worker.entrypoints.view.questions import asked_of
from harness_worker.errors import ConfigError, HarnessError
from harness_worker.wire import JsonObject

_EXAMPLE: Final = 'write a JSON object, such as \'{"order_id": "1042"}\''


def decide(
    client: GatewayClient,
    turn_id: str,
    call_id: str | None,
    decision: Literal["approve", "deny"],
    **said: object,
) -> JsonObject:
    """Approve or deny one call of a turn, or all that it and the turns below it wait for.

    Args:
        client: The gateway.
        turn_id: The turn.
        call_id: The call; ``None``: all that wait.
        decision: The decision.
        **said: ``reason`` and ``arguments``; ``None`` counts as absent.

    Returns:
        The turn afterwards.

    Raises:
        HarnessError: No call waits.
        ConfigError: Several calls wait, but only one set of arguments was given.
        RequestRefused: The call no longer waits, or the arguments do not fit.
    """
    given: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    answer: Callable[..., JsonObject] = client.approve if decision == "approve" else client.deny
    if call_id is not None:
        return answer(turn_id, call_id, **given)
    turn = client.turn(turn_id)
    waiting = [(action["turn_id"], action["call_id"]) for action in asked_of(turn)]
    if not waiting:
        raise HarnessError(f"turn {turn_id} is {turn['status']}: none of its calls waits for anybody")
    if "arguments" in given and len(waiting) > 1:
        raise ConfigError(f"{len(waiting)} calls wait ({_listed(waiting, turn_id)}): say which one gets the arguments")
    for waits_id, each in waiting:
        turn = answer(waits_id, each, **given)
    return turn if turn["id"] == turn_id else client.turn(turn_id)


def _listed(waiting: Sequence[tuple[str, str]], turn_id: str) -> str:
    return ", ".join(call_id if of == turn_id else f"{call_id} of turn {of}" for of, call_id in waiting)


def arguments_from(text: str | None) -> Mapping[str, Any] | None:
    """Arguments given on the command line.

    Raises:
        ConfigError: They are not a JSON object, or cannot be sent.
    """
    if text is None:
        return None
    try:
        found = parsed(text.encode(errors="surrogateescape"))  # the bytes of the command line
    except ValueError as error:
        raise ConfigError(f"--arguments {text}: {error}; {_EXAMPLE}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"--arguments {text}: {_EXAMPLE}")
    return cast("Mapping[str, Any]", found)
