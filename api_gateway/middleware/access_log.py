"""The access log: one structured line a request."""

from __future__ import annotations

import logging
from typing import Any, Final

import structlog
from starlette.types import Scope

QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_log: Final[Any] = structlog.wrap_logger(
    logging.getLogger("api_gateway.access"),
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.JSONRenderer(ensure_ascii=False),
    ],
)


def log_access(scope: Scope, status: int, elapsed_s: float) -> None:
    """Log method, path, status and time of a request as JSON; never a body, a query or a header."""
    log = _log.debug if scope["path"] in QUIET else _log.info
    elapsed_ms = round(elapsed_s * 1000, 1)
    log("request", method=scope["method"], path=scope["path"], status=status, elapsed_ms=elapsed_ms)
