"""Explains in a few words why a connection could not be opened."""

from __future__ import annotations

from collections.abc import Sequence

from mcp.shared.exceptions import MCPError

from harness_worker.adapters.mcp.exchanges import Exchange


def reason_of(error: BaseException, exchange: Exchange, *, within_s: float) -> str:
    """A reason that an operator can act on, without the server's headers and variables.

    Args:
        error: What the SDK raised.
        exchange: The requests that were made.
        within_s: The time limit, in seconds.
    """
    if exchange.error is not None:
        return f"{type(exchange.error).__name__}: {exchange.error}".rstrip(": ")
    if exchange.status is not None and exchange.status >= 400:
        return f"it answered HTTP {exchange.status}"
    leaf = _leaf(error)
    if isinstance(leaf, TimeoutError):
        return f"no answer within {within_s:g} s"
    if isinstance(leaf, MCPError):
        return leaf.message
    return f"{type(leaf).__name__}: {leaf}".rstrip(": ")


def _leaf(error: BaseException) -> BaseException:
    """The innermost error; the SDK's task groups wrap what they raise."""
    inner: Sequence[BaseException] = getattr(error, "exceptions", ())
    return _leaf(inner[0]) if inner else error
