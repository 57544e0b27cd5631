"""The gateway's log: one JSON object a line on stderr, of its own and of its libraries."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any, Final

from structlog.processors import JSONRenderer, TimeStamper, format_exc_info
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level, add_logger_name
from structlog.types import EventDict, Processor

QUIET_S: Final = 10.0
"""How long nothing is said of a lack that goes on."""

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
    """Write what is logged from now on.

    A line is of ASCII, so that no request moves a terminal's cursor. It has ``event``, ``timestamp`` (UTC), ``level``,
    ``logger``, what its caller gave as ``extra``, and the traceback of an error as ``exception``.

    Args:
        level: Of the gateway's own loggers. Libraries stay at ``WARNING``: a database driver's debug log holds users'
            texts.
    """
    handler = logging.StreamHandler(sys.stderr)
    processors: list[Processor] = [ProcessorFormatter.remove_processors_meta, _without_colors, JSONRenderer()]
    handler.setFormatter(ProcessorFormatter(processors=processors, foreign_pre_chain=_FIELDS))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("api_gateway").setLevel(level)


class AcceptErrors:
    """An event loop's handler of errors: of connections that it cannot accept it tells now and then, in one line.

    asyncio itself tells of each of its tries, thousands a second, with a traceback. All else it tells as ever.
    """

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Tell of an error."""
        error = context.get("exception")
        if not isinstance(error, OSError) or "accept()" not in context["message"]:
            loop.default_exception_handler(context)
        elif loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + QUIET_S
            _log.error("no more connections are accepted for now: %s", in_a_line(error))


def in_a_line(error: Exception) -> str:
    """What an error says, in one line; its type if it says nothing."""
    return str(error).partition("\n")[0] or type(error).__name__
