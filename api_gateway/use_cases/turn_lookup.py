"""Finding a turn by its id, for the request handlers, and asking it to stop."""

from __future__ import annotations

from typing import TypeVar

from api_gateway.problems import Problem
from api_gateway.requests.fields import LONGEST_ID
from api_gateway.services import Services
from api_gateway.turns.answers import Turn
from api_gateway.turns.store import Terms

T = TypeVar("T")


def no_such_turn(turn_id: str) -> Problem:
    """404 ``not_found`` for a turn."""
    return Problem("not_found", f"there is no turn {turn_id[:LONGEST_ID]!r}")


def existing(found: T | None, turn_id: str) -> T:
    """What was found of a turn.

    Raises:
        Problem: 404 ``not_found``: nothing was, so there is no such turn.
    """
    if found is None:
        raise no_such_turn(turn_id)
    return found


async def existing_turn(turn_id: str, services: Services) -> Turn:
    """The turn with its calls.

    Raises:
        Problem: 404 ``not_found``.
    """
    return existing(await services.turns.one(turn_id), turn_id)


async def existing_terms(turn_id: str, services: Services) -> Terms:
    """How the turn was asked for.

    Raises:
        Problem: 404 ``not_found``.
    """
    return existing(await services.turns.terms(turn_id), turn_id)


async def ask_to_stop(turn_id: str, services: Services) -> Turn | None:
    """Ask a turn to stop; returns the turn as it was then, or ``None`` if there is no such unfinished turn."""
    asked = await services.turns.request_cancel(turn_id)
    if asked is None:
        return None
    turn, priority = asked
    await services.shared.publisher.interrupt([(turn_id, priority)], services.tenant)
    return turn
