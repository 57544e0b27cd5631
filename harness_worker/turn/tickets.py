"""What a tool process needs to run a call; the gate carries it for reads, the journal's row for others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness_worker.core.canonical import compact
from harness_worker.core.records import Call, Turn
from harness_worker.wire import as_mapping, fields_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One call, ready to run."""

    turn_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    session_id: str
    tenant: str
    idempotency_key: str
    was_coerced: bool = False
    agent: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_json(self) -> str:
        """This ticket as the gate carries it."""
        return compact(as_mapping(self))

    @classmethod
    def from_json(cls, text: str) -> Ticket:
        """The ticket that :meth:`to_json` wrote."""
        return cls(**fields_of(cls, json.loads(text)))


def ticket_for(turn: Turn, call: Call) -> Ticket:
    """The ticket of a call of a turn."""
    return Ticket(
        turn_id=turn.id,
        call_id=call.call_id,
        tool=call.tool,
        arguments=call.arguments,
        session_id=turn.session_id,
        tenant=turn.tenant,
        idempotency_key=call.idempotency_key,
        was_coerced=call.was_coerced,
        agent=turn.agent,
        metadata=turn.metadata,
    )
