"""Batches on the command line: reading their turns from a file, and waiting for their end."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from harness_worker.client.client import GatewayClient, RequestRefused, batch_has_ended
from harness_worker.client.polling import poll
from harness_worker.core.json_lines import numbered_lines, parsed
from harness_worker.errors import ConfigError
from harness_worker.wire import JsonObject

if TYPE_CHECKING:
    from harness_worker.ports import Clock

TELL_S: Final = 5.0
"""Seconds between two reports on a batch's progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One turn of a file.

    Args:
        place: Its place, ``FILE:LINE``.
        request: The request to post.
    """

    place: str
    request: JsonObject


def items_in(name: str, content: bytes, agent: str | None) -> list[Item]:
    """The requests in a file, one per line; empty lines are skipped.

    Args:
        name: The file's name.
        content: The file's content.
        agent: The agent for lines that name none.

    Raises:
        ConfigError: A line is not an object of ``custom_id`` and ``params`` (the message names it), or there are none.
    """
    items = [_item(f"{name}:{number}", line, agent) for number, line in numbered_lines(content)]
    if not items:
        raise ConfigError(f'{name}: give at least one turn, {{"custom_id": …, "params": {{…}}}} on a line of its own')
    return items


def _item(place: str, line: bytes, agent: str | None) -> Item:
    try:
        found: Any = parsed(line)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from None
    item: Mapping[str, Any] = cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}
    params: Any = item.get("params")
    if set(item) != {"custom_id", "params"} or not isinstance(params, dict):
        raise ConfigError(f'{place}: give {{"custom_id": "a-name", "params": {{"agent": …, "input": …}}}}')
    usual = {} if agent is None else {"agent": agent}
    return Item(place=place, request={**item, "params": {**usual, **cast("Mapping[str, Any]", params)}})


@contextmanager
def told_by_line(items: Sequence[Item]) -> Generator[None]:
    """Within the context, report what the gateway refuses about the turns of a file by line number.

    Raises:
        ConfigError: The gateway refused some turns; the message lists their lines and what is wrong.
        RequestRefused: The gateway refused for another reason.
    """
    try:
        yield
    except RequestRefused as refused:
        errors: list[JsonObject] = refused.problem.get("errors") or []
        if not errors:
            raise
        raise ConfigError(
            "\n  ".join(f"{_place(error['loc'], items)}: {_said(error)}" for error in errors)
        ) from refused


def _place(loc: Sequence[str | int], items: Sequence[Item]) -> str:
    match loc:
        case ("body", "requests", int(number), *rest):
            return ": ".join([items[number].place, *filter(None, [".".join(map(str, rest))])])
        case _:
            return ".".join(map(str, loc))


def _said(error: JsonObject) -> str:
    is_option_missing = error["loc"][3:] == ["params", "agent"] and error["msg"] == "Field required"
    return f"{error['msg']}, or --agent NAME for all lines that name none" if is_option_missing else error["msg"]


def until_ended(
    client: GatewayClient, clock: Clock, batch: JsonObject, most_s: float, tell: Callable[[JsonObject], None]
) -> JsonObject:
    """The batch once it has ended, or as it is when ``most_s`` seconds have passed.

    Args:
        client: The gateway.
        clock: For the pauses.
        batch: The batch as last seen.
        most_s: How long to wait, in seconds.
        tell: Receives the batch now and then, if it has changed since the last time.
    """
    gateway = client.with_patience(clock=clock)
    told, told_at = batch, -math.inf

    def look() -> JsonObject:
        nonlocal told, told_at
        found, now = gateway.batch(batch["id"]), clock.monotonic()
        if not batch_has_ended(found) and found["counts"] != told["counts"] and now >= told_at + TELL_S:
            tell(found)
            told, told_at = found, now
        return found

    return poll(look, batch_has_ended, most_s, clock)
