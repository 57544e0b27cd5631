"""Inspecting a tool's function before anything runs: its name, its parameters and their resolved hints."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, cast, get_type_hints

from harness_worker.core.registration.author_code import Raised, attempt
from harness_worker.errors import ConfigError

_signature = inspect.signature
if sys.version_info >= (3, 14):  # hints are evaluated when somebody asks, and may exist for type checkers only
    from annotationlib import Format

    _signature = functools.partial(inspect.signature, annotation_format=Format.FORWARDREF)

CTX = "ctx"
NO_DEFAULT = inspect.Parameter.empty

_CACHED = type(functools.cache(lambda: None))
"""The type of a function wrapped by ``lru_cache`` or ``cache``."""

_ASYNC = "async functions are refused, workers are synchronous; write it with plain `def`"

_OWNERS = {"self", "cls"}
"""The usual names of an unbound method's first parameter."""

_VARIADIC = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter that the model fills in; ``default`` is ``NO_DEFAULT`` if it is required."""

    name: str
    hint: Any
    default: Any


def underlying(fn: Callable[..., object]) -> Callable[..., Any]:
    """The plain function behind partials, methods, callable objects and ``functools.wraps``."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    return inspect.unwrap(getattr(fn, "__func__", fn))


def name_of(fn: Callable[..., object]) -> str | None:
    """The function's name, or ``None`` for an object or a lambda without a name of its own."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", None)
    return name if isinstance(name, str) and name != "<lambda>" else None


def signature_of(fn: object, label: str) -> inspect.Signature:
    """The signature of a function that a worker can call: synchronous, and not a class.

    Raises:
        ConfigError: ``fn`` is not one; the message starts with ``label``.
    """
    if not callable(fn) or inspect.isclass(fn):
        raise ConfigError(f"{label}: {fn!r} is not a function; register a function, a method or a callable object")
    if _is_async(fn):
        raise ConfigError(f"{label}: {_ASYNC}")
    try:
        return _signature(fn)
    except (TypeError, ValueError):
        raise ConfigError(f"{label}: Python cannot tell its parameters; wrap it in a function with hints") from None


def check_takes(fn: object, label: str, given: str, *, may_yield: bool = False) -> None:
    """Refuse a function that would surely fail when called with one argument, as workers call rules and hooks.

    Only plain functions are judged, including those behind methods, caches and callable objects; of a partial, only the
    function that it calls. Anything else, such as what a decorator returned, is trusted.

    Args:
        fn: A hook, or a rule of the arguments.
        label: Its name in error messages.
        given: What the argument is, for error messages.
        may_yield: Whether it may return a generator.

    Raises:
        ConfigError: It is not a function, is async, or takes other arguments; the message starts with ``label``.
    """
    if not callable(fn):
        raise ConfigError(f"{label} must be a function, not {fn!r}")
    called, before = _called(fn)
    if called is None:
        return
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise ConfigError(f"{label}: {_ASYNC}")
    if inspect.isgeneratorfunction(called) and not may_yield:
        raise ConfigError(f"{label} must return what it says, but it yields: it would never run")
    if before is None or "__signature__" in vars(called):
        return
    signature = attempt(_signature, called, follow_wrapped=False)  # may evaluate the author's hints
    if isinstance(signature, Raised):
        return
    try:
        signature.bind(*(None,) * (before + 1))
    except TypeError:
        raise ConfigError(f"{label} must take one argument, {given}, but its parameters are {signature}") from None


def _called(given: object) -> tuple[FunctionType | None, int | None]:
    """The plain function that a call of ``given`` runs, if known, and how many arguments are put before the caller's.

    Compares types instead of using ``isinstance``, which believes what mocks and proxies claim to be.
    """
    fn, before, type_of = cast("tuple[Any, int | None, Callable[[object], Any]]", (given, 0, type))
    while (kind := type_of(fn)) is not FunctionType:
        if issubclass(kind, functools.partial):
            fn, before = fn.func, None
        elif issubclass(kind, _CACHED):
            fn = fn.__wrapped__
        else:
            is_method = issubclass(kind, MethodType)
            fn = fn.__func__ if is_method else inspect.getattr_static(kind, "__call__", None)
            before = None if before is None else before + 1
            if not is_method and type_of(fn) is not FunctionType:
                return None, None
    return fn, before


def parameters_of(
    fn: Callable[..., object], signature: inspect.Signature, label: str, namespace: Mapping[str, Any]
) -> tuple[Parameter, ...]:
    """The parameters that a model fills in: all except ``ctx`` and those that a partial has fixed.

    Args:
        fn: The tool's function.
        signature: Its signature.
        label: The tool's name in error messages.
        namespace: Local names in which hints given as text are looked up, besides the function's module.

    Raises:
        ConfigError: A parameter has no hint, or one that cannot be resolved, or cannot be passed by name.
    """
    fixed = _fixed(fn)
    taken = [p for p in signature.parameters.values() if p.name != CTX and p.name not in fixed]
    for parameter in signature.parameters.values():
        _check_kind(parameter, label)
    scope = {**_closure(underlying(fn)), **namespace}
    return tuple(Parameter(name=p.name, hint=_hint(fn, p, label, scope), default=p.default) for p in taken)


def _fixed(fn: Callable[..., object]) -> Collection[str]:
    return cast("functools.partial[object]", fn).keywords if isinstance(fn, functools.partial) else ()


def _is_async(fn: Callable[..., object]) -> bool:
    called = _behind(fn)
    if not inspect.isroutine(called):
        called = _behind(type(called).__call__)
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


def _behind(fn: Any) -> Any:  # noqa: ANN401 - callables of many kinds
    """The function behind partials, methods and caches, which return what it returns; other wrappers may not."""
    while True:
        if isinstance(fn, functools.partial):
            fn = cast("functools.partial[object]", fn).func
        elif isinstance(fn, MethodType | staticmethod | classmethod):
            fn = cast("MethodType", fn).__func__
        elif isinstance(fn, _CACHED):
            fn = fn.__wrapped__
        else:
            return fn


def _check_kind(parameter: inspect.Parameter, label: str) -> None:
    if parameter.kind in _VARIADIC:
        shown = _VARIADIC[parameter.kind] + parameter.name
        raise ConfigError(f"{label}: parameter {shown!r} has no schema; name each parameter, or use add_tool")
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise ConfigError(f"{label}: parameter {parameter.name!r} is positional-only; drop the `/` after it")


def _hint(fn: Callable[..., object], parameter: inspect.Parameter, label: str, scope: Mapping[str, Any]) -> object:
    where = f"{label}: parameter {parameter.name!r}"
    if parameter.annotation is inspect.Parameter.empty:
        raise ConfigError(f"{where} has no type hint; {_mend(fn, parameter)}")
    try:
        return _resolved(parameter.annotation, getattr(underlying(fn), "__globals__", {}), scope)
    except Exception as error:  # noqa: BLE001 - a hint is the tool author's expression: it may raise anything
        raise ConfigError(
            f"{where}: its hint {parameter.annotation!r} cannot be resolved ({error}); "
            "define the type at module level and import it at run time"
        ) from None


def _mend(fn: Callable[..., object], parameter: inspect.Parameter) -> str:
    if parameter.name in _OWNERS:
        return f"register the bound method: `registry.tool(obj.{name_of(fn)})`"
    return f"add one, such as `{parameter.name}: str`"


def _resolved(annotation: object, module: dict[str, Any], scope: Mapping[str, Any]) -> object:
    """One hint, resolved by itself: those of ``ctx`` and of the return value may exist for type checkers only."""

    def holder() -> None: ...

    holder.__annotations__ = {"hint": annotation}
    return get_type_hints(holder, globalns=module, localns=dict(scope), include_extras=True)["hint"]


def _closure(fn: Callable[..., Any]) -> dict[str, Any]:
    names = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    cells = getattr(fn, "__closure__", None) or ()
    found: dict[str, Any] = {}
    for name, cell in zip(names, cells, strict=False):
        with suppress(ValueError):  # the name is not bound yet
            found[name] = cell.cell_contents
    return found
