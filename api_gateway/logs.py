"""The gateway's log: one JSON object a line on stderr, from the gateway and its libraries."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any, Final

from structlog.processors import JSONRenderer, TimeStamper, format_exc_info
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level, add_logger_name
from structlog.types import EventDict, Processor

QUIET_S: Final = 10.0
"""How long an error that keeps recurring is not logged again."""

_log = logging.getLogger(__name__)

_FIELDS: Final[tuple[Processor, ...]] = (
    TimeStamper(fmt="iso"),
    add_log_level,
    add_logger_name,
    ExtraAdder(),
    format_exc_info,
)


def _without_colors(_logger: object, _name: str, line: EventDict) -> EventDict:
    line.pop("color_message", None)  # uvicorn's, for terminals
    return line


def log_to_stderr(level: str) -> None:
    """Write everything logged from now on to stderr.

    Lines are ASCII, so that no request can move a terminal's cursor. Each has ``event``, ``timestamp`` (UTC),
    ``level``, ``logger``, what the caller passed as ``extra``, and the traceback of an error as ``exception``.

    Args:
        level: The level of the gateway's own loggers. Libraries stay at ``WARNING``: a database driver's debug log
            contains users' texts.
    """
    handler = logging.StreamHandler(sys.stderr)
    processors: list[Processor] = [ProcessorFormatter.remove_processors_meta, _without_colors, JSONRenderer()]
    handler.setFormatter(ProcessorFormatter(processors=processors, foreign_pre_chain=_FIELDS))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("api_gateway").setLevel(level)
    logging.getLogger("uvicorn.error").addFilter(_is_not_of_a_cut)


def _is_not_of_a_cut(record: logging.LogRecord) -> bool:
    """Whether it is not uvicorn's line for an answer that was cut off: whoever cut it has said why."""
    return record.msg != "ASGI callable returned without completing response."


class AcceptErrors:
    """An event loop's error handler that logs connections it cannot accept only now and then, in one line.

    asyncio itself would log every attempt, thousands a second, each with a traceback. All other errors are left to
    the loop's default handler.
    """

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error."""
        error = context.get("exception")
        if not isinstance(error, OSError) or "accept()" not in context["message"]:
            loop.default_exception_handler(context)
        elif loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + QUIET_S
            _log.error("no more connections are accepted for now: %s", in_a_line(error))


def in_a_line(error: Exception) -> str:
    """The first line of an error's message; its type if it has none."""
    return str(error).partition("\n")[0] or type(error).__name__
