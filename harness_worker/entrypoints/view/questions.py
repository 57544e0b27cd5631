"""The approvals that a turn, and the turns below it, wait for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness_worker.entrypoints.plain import plain
from harness_worker.wire import JsonObject


def asked_of(turn: Mapping[str, Any]) -> Sequence[JsonObject]:
    """The approvals that a turn and those below it wait for, each with the ``turn_id`` to answer."""
    return [*({**action, "turn_id": turn["id"]} for action in turn["required_actions"]), *_below(turn)]


def questions(turn: Mapping[str, Any]) -> Sequence[str]:
    """The same in words, a line per call: ``0.1 refund {"order_id": "1042"}``."""
    return [plain(_question(action)) for action in (*turn["required_actions"], *_below(turn))]


def _question(action: JsonObject) -> str:
    of = f" of turn {action['turn_id']}" if "turn_id" in action else ""
    return f"{action['call_id']} {action['tool']} {json.dumps(action['arguments'], ensure_ascii=False)}{of}"


def _below(turn: Mapping[str, Any]) -> Sequence[JsonObject]:
    """The approvals that turns below it wait for; a gateway of an earlier version does not report them."""
    return turn.get("subagent_actions", ())
