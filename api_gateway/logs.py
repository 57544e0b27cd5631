"""The gateway's log: one JSON object a line on stderr, of its own and of its libraries."""

from __future__ import annotations

import logging
import sys
from typing import Final

from structlog.processors import JSONRenderer, TimeStamper, format_exc_info
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level, add_logger_name
from structlog.types import Processor

_FIELDS: Final[tuple[Processor, ...]] = (
    TimeStamper(fmt="iso"),
    add_log_level,
    add_logger_name,
    ExtraAdder(),
    format_exc_info,
)


def log_to_stderr(level: str) -> None:
    """Write what is logged from now on.

    A line is of ASCII, so that no request moves a terminal's cursor. It has ``event``, ``timestamp`` (UTC), ``level``,
    ``logger``, what its caller gave as ``extra``, and the traceback of an error as ``exception``.

    Args:
        level: Of the gateway's own loggers. Libraries stay at ``WARNING``: a database driver's debug log holds users'
            texts.
    """
    handler = logging.StreamHandler(sys.stderr)
    processors: list[Processor] = [ProcessorFormatter.remove_processors_meta, JSONRenderer()]
    handler.setFormatter(ProcessorFormatter(processors=processors, foreign_pre_chain=_FIELDS))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("api_gateway").setLevel(level)


def in_a_line(error: Exception) -> str:
    """What an error says, in one line; its type if it says nothing."""
    return str(error).partition("\n")[0] or type(error).__name__
