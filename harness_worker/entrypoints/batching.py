"""A batch on the command line: its turns as a file has them, and the wait for its end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, cast

from harness_worker.entrypoints.client import GatewayClient, JsonObject
from harness_worker.entrypoints.patience import Patience
from harness_worker.errors import ConfigError
from harness_worker.ports import Clock

SOON_S: Final = 0.25
SELDOM_S: Final = 2.0
LOOKS_A_WAIT: Final = 10
"""A look comes a tenth of the wait too late, at most, or two seconds."""

TELL_S: Final = 5.0


def items_in(name: str, content: bytes, agent: str | None) -> list[JsonObject]:
    """The requests of a file, one a line; empty lines are none.

    Args:
        name: What the file is called.
        content: What it holds.
        agent: Whom to ask where a line names no agent.

    Raises:
        ConfigError: A line is no object of ``custom_id`` and ``params``, or there is none; the message names it.
    """
    items = [_item(f"{name}:{number}", line, agent) for number, line in _lines(name, content)]
    if not items:
        raise ConfigError(f'{name}: give at least one turn, {{"custom_id": …, "params": {{…}}}} on a line of its own')
    return items


def _lines(name: str, content: bytes) -> Iterator[tuple[int, str]]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8: byte {error.start + 1}") from None
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _item(place: str, line: str, agent: str | None) -> JsonObject:
    try:
        found: Any = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: not JSON: {error}") from None
    item: Mapping[str, Any] = cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}
    params: Any = item.get("params")
    if set(item) != {"custom_id", "params"} or not isinstance(params, dict):
        raise ConfigError(f'{place}: give {{"custom_id": "a-name", "params": {{"agent": …, "input": …}}}}')
    usual = {} if agent is None else {"agent": agent}
    return {**item, "params": {**usual, **cast("Mapping[str, Any]", params)}}


def has_ended(batch: Mapping[str, Any]) -> bool:
    """Whether all turns of a batch are over."""
    return batch["status"] == "ended"


class BatchWait:
    """Looks at a batch until its end, through restarts of the gateway.

    Args:
        client: The gateway.
        clock: For the pauses.
        tell: Told now and then how the batch stands, if it stands otherwise than when it was told last.
    """

    def __init__(self, client: GatewayClient, clock: Clock, tell: Callable[[JsonObject], None]) -> None:
        self._client = client
        self._clock = clock
        self._tell = tell
        self._patiently = Patience(clock)

    def until_ended(self, batch: JsonObject, most_s: float | None) -> JsonObject:
        """The batch once it has ended, or as it is when ``most_s`` seconds have passed."""
        began, told, told_at = self._clock.monotonic(), batch, -math.inf
        while not has_ended(batch):
            now = self._clock.monotonic()
            if most_s is not None and now >= began + most_s:
                break
            if batch["counts"] != told["counts"] and now >= told_at + TELL_S:
                self._tell(batch)
                told, told_at = batch, now
            self._clock.wait(min(SELDOM_S, max(SOON_S, (now - began) / LOOKS_A_WAIT)))
            batch = self._patiently(partial(self._client.batch, batch["id"]))
        return batch
