"""Checks of keyword arguments: a wrong or missing one is refused like any other mistake in a declaration."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from harness_worker.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")


def declares(method: Callable[P, T]) -> Callable[P, T]:
    """The registry's method, made to refuse unknown or missing arguments with ``ConfigError``, not ``TypeError``."""
    signature = inspect.signature(method)
    _, *names = signature.parameters
    takes = ", ".join(f"**{name}" if _is_rest(signature.parameters[name]) else name for name in names)

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            signature.bind_partial(*args, **kwargs)  # reports what is unknown before what is missing
            signature.bind(*args, **kwargs)
        except TypeError as error:
            given = {**dict(zip(signature.parameters, args, strict=False)), **kwargs}
            named = [repr(given[word]) for word in ("name", "agent") if word in given]
            raise ConfigError(f"{method.__name__}({', '.join(named) or '…'}): {error}; it takes: {takes}") from None
        return method(*args, **kwargs)

    return checked


def _is_rest(parameter: inspect.Parameter) -> bool:
    return parameter.kind is inspect.Parameter.VAR_KEYWORD
