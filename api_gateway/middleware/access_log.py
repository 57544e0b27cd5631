"""The access log: one line a request."""

from __future__ import annotations

import logging
from typing import Final

from starlette.types import Scope

QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})

log = logging.getLogger("api_gateway.access")


def log_access(scope: Scope, status: int, elapsed_s: float) -> None:
    """Log method, path, status and time of a request; never a body, a query or a header."""
    level = logging.DEBUG if scope["path"] in QUIET else logging.INFO
    elapsed_ms = round(elapsed_s * 1000, 1)
    facts = {"method": scope["method"], "path": scope["path"], "status": status, "elapsed_ms": elapsed_ms}
    log.log(level, "request", extra=facts)
