"""Whether the client of a long answer is still let in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from api_gateway.concurrency.coalescing import LateAnswers

ASK_S: Final = 5.0
"""How long an answer may go on after its key was revoked, in seconds, plus one database read."""

MayGoOn: TypeAlias = Callable[[], Coroutine[Any, Any, bool]]
"""Tells whether the client is still let in."""


class Permission:
    """Whether a client is still let in: asked every few seconds; until an answer comes, the last one holds.

    Args:
        may_go_on: Asks.
    """

    def __init__(self, may_go_on: MayGoOn) -> None:
        self._answers = LateAnswers(may_go_on)
        self._clock = asyncio.get_running_loop().time
        self._asked_at = self._clock()

    async def holds(self, patience_s: float = 0.0) -> bool:
        """Whether the client is still let in, as last known after waiting at most so long for an answer."""
        if self._clock() - self._asked_at < ASK_S:
            return True
        try:
            holds = await self._answers.within(patience_s)
        except TimeoutError:
            return True  # A later look gets the answer.
        self._asked_at = self._clock()
        return holds

    def leave(self) -> None:
        """Cancel the open question."""
        self._answers.leave()
