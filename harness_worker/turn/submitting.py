"""Storing a turn that a message of the broker asks for, besides those that the gateway stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from harness_worker.core.api_keys import checked_name
from harness_worker.core.budget import BudgetLimits
from harness_worker.core.records import Turn
from harness_worker.core.turn_request import INPUT, TurnRequest, queued_turn
from harness_worker.errors import ConfigError
from harness_worker.ports import Catalogue, Dispatcher, TurnStore
from harness_worker.validation import storable
from harness_worker.wire import DEFAULT_TENANT, TURN_ID, Priority

OPTIONS: Final = tuple(field.name for field in fields(TurnRequest))
NAMES: Final = ("agent", *OPTIONS, "tenant")
"""What a message may contain; all but the required ones may be left out."""
REQUIRED: Final = ("agent", INPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitting:
    """Stores turns that messages ask for; keeps no state of any turn.

    Args:
        store: The journal.
        catalogue: The published agents.
        dispatcher: Sends wake-ups.
        longest_bytes: The maximum size of a turn's texts together, in bytes of UTF-8.
    """

    store: TurnStore
    catalogue: Catalogue
    dispatcher: Dispatcher
    longest_bytes: int

    def submit(self, turn_id: str, asked: Mapping[str, Any], priority: Priority) -> None:
        """Store the turn and have it looked at. If it is submitted again, it is the same turn.

        Args:
            turn_id: The turn's id, which is that of its message.
            asked: What the sender wrote, by name; see :data:`NAMES`.
            priority: Selects the queue of its wake-ups.

        Raises:
            ConfigError: Something is wrong with the turn, or its id is another turn's; nothing is stored.
            TransientError: The journal did not answer; the turn may have been stored.
        """
        turn = self._turn(turn_id, asked, priority)
        self._check_length(turn)
        self.store.insert_turn(turn)
        self._check_same(turn)
        self.dispatcher.advance(turn_id, priority, begins=True)

    def _turn(self, turn_id: str, asked: Mapping[str, Any], priority: Priority) -> Turn:
        if not TURN_ID.fullmatch(turn_id):
            which = "64 of A-Z a-z 0-9 _ . - at most, and not dots alone"
            raise ConfigError(f"the task's id becomes the turn's: {which}, not {turn_id!r:.80}")
        unknown = sorted(set(asked) - set(NAMES))
        if unknown:
            raise ConfigError(f"there is no {', '.join(unknown)[:200]}: give {', '.join(NAMES)}, by name")
        for name in REQUIRED:
            if asked.get(name) is None:
                raise ConfigError(f"{name} is missing: give {' and '.join(REQUIRED)}, by name")
        agent, tenant = _agent(asked["agent"]), _tenant(asked.get("tenant"))
        caps = self._caps(agent)
        options = TurnRequest(**{name: asked.get(name) for name in OPTIONS})
        return queued_turn(options, turn_id=turn_id, tenant=tenant, agent=agent, caps=caps, priority=priority)

    def _caps(self, agent: str) -> BudgetLimits:
        caps = self.catalogue.caps_of(agent)
        if caps is None:
            raise ConfigError(f"there is no agent {agent!r}; GET /v1/agents lists those there are")
        return caps

    def _check_length(self, turn: Turn) -> None:
        texts = (turn.input, turn.system_prompt_override, turn.skill_context)
        size_bytes = sum(len((text or "").encode()) for text in texts)
        if size_bytes > self.longest_bytes:
            raise ConfigError(
                f"{INPUT}, system_prompt_override and skill_context have {size_bytes} bytes together, more than "
                f"HARNESS_MAX_BODY_BYTES={self.longest_bytes}"
            )

    def _check_same(self, turn: Turn) -> None:
        stored = self.store.load(turn.id)
        if stored is not None and _identity_of(stored.turn) != _identity_of(turn):
            raise ConfigError(f"{turn.id} is the id of another turn already: choose another for the task")


def _identity_of(turn: Turn) -> tuple[str, str, str]:
    return turn.tenant, turn.agent, turn.input


def _agent(given: object) -> str:
    text = _text("agent", given)
    try:
        return storable(text)
    except ValueError as error:
        raise ConfigError(f"agent {error}") from None


def _tenant(given: object) -> str:
    return DEFAULT_TENANT if given is None else checked_name(_text("tenant", given), "tenant")


def _text(what: str, given: object) -> str:
    if not isinstance(given, str):
        raise ConfigError(f"{what} must be a string, not {type(given).__name__}")
    return given
