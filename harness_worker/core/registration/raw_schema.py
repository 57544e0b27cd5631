"""Tools that bring their own JSON Schema: the arguments reach the function exactly as the model gave them."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import jsonschema_rs

from harness_worker.core.canonical import compact
from harness_worker.core.registration.callables import CTX, signature_of
from harness_worker.core.registration.problems import MISSING, UNKNOWN, bounded, json_text, place, short
from harness_worker.core.registration.tools import Arguments, BoundArguments
from harness_worker.core.run_context import RunContext
from harness_worker.core.text import clean_text
from harness_worker.errors import ArgumentsInvalid, ArgumentsOutdated, ConfigError
from harness_worker.validation import closed_schema

_VALUE: Final = "\0"
"""Stands for a refused value in what the validator says of it, so that a long value can be cut and the rest told."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFunction:
    """A function ``fn(args: dict)`` or ``fn(args: dict, ctx)`` with a JSON Schema of ``args``."""

    fn: Callable[..., object]
    schema: Mapping[str, Any]
    validator: jsonschema_rs.Validator
    ctx_as: inspect.Parameter | None

    def bind(self, arguments: Arguments) -> BoundArguments:
        """The arguments, untouched.

        Raises:
            ArgumentsInvalid: One line for each argument that is missing, unknown or of the wrong type.
        """
        json_text(arguments)
        if lines := self._problems(arguments):
            raise ArgumentsInvalid(bounded(lines))
        return BoundArguments(values=copy.deepcopy(arguments))

    def _problems(self, arguments: Arguments) -> list[str]:
        try:
            return [line for error in self.validator.iter_errors(arguments) for line in _lines(error)]
        except ValueError as error:
            return [f"arguments: {short(str(error))}"]

    def typed(self, values: Arguments) -> dict[str, Any]:
        """The arguments, as a copy that the function may change."""
        return copy.deepcopy(values)

    def invoke(self, values: Arguments, ctx: RunContext) -> object:
        """Call the function and return what it returns; raises what it raises.

        Raises:
            ArgumentsOutdated: The arguments were bound for another schema and do not fit; nothing was called.
        """
        if lines := self._problems(values):
            raise ArgumentsOutdated(bounded(lines))
        if self.ctx_as is None:
            return self.fn(self.typed(values))
        if self.ctx_as.kind is inspect.Parameter.KEYWORD_ONLY or self.ctx_as.name == CTX:
            return self.fn(self.typed(values), **{self.ctx_as.name: ctx})
        return self.fn(self.typed(values), ctx)


def inspect_raw(fn: Callable[..., object], schema: Mapping[str, Any], label: str) -> RawFunction:
    """Check a function and the JSON Schema of its arguments.

    If a schema lists ``properties`` and does not mention others, arguments that are not listed are refused.

    Raises:
        ConfigError: The schema is not a JSON Schema of an object, or the function does not take ``(args)`` or
            ``(args, ctx)``.
    """
    published = _object_schema(schema, label)
    return RawFunction(
        fn=fn,
        schema=published,
        validator=_validator(closed_schema(published), label),
        ctx_as=_ctx_parameter(signature_of(fn, label), label),
    )


def _object_schema(schema: Mapping[str, Any], label: str) -> dict[str, Any]:
    if not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not type-checked
        raise ConfigError(f"{label}: schema must be a JSON Schema object, not {type(schema).__name__}")
    try:
        whole: dict[str, Any] = {"type": "object", **_plain(schema)}
    except RecursionError:
        raise ConfigError(f"{label}: schema nests too deep or contains itself; use $ref for recursion") from None
    except ValueError as error:
        raise ConfigError(f"{label}: not a valid JSON Schema: {error}") from None
    if whole["type"] != "object":
        raise ConfigError(f'{label}: schema must say `"type": "object"`, not {whole["type"]!r}')
    return whole


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A copy of a part of a schema, in which every mapping is a dict, as the validator needs it.

    Raises:
        ValueError: It holds a number that JSON does not have.
        RecursionError: It nests too deep.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not JSON")
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    return [_plain(item) for item in cast("list[Any]", value)] if isinstance(value, list | tuple) else value


def _validator(schema: dict[str, Any], label: str) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(schema, offline=True, mask=_VALUE)
    except jsonschema_rs.ValidationError as error:
        where = f"{place(list(error.instance_path))}: " if error.instance_path else ""
        raise ConfigError(f"{label}: not a valid JSON Schema: {where}{_said(error)}") from None
    except ValueError as error:
        raise ConfigError(f"{label}: not a valid JSON Schema: {error}") from None


def _ctx_parameter(signature: inspect.Signature, label: str) -> inspect.Parameter | None:
    """The parameter that gets the run context: one named ``ctx``, or else the second one.

    A parameter with a default of the author's own, as in ``lambda args, table=table: …``, is left alone.
    """
    parameters = [each for each in signature.parameters.values() if not _has_own_value(each)]
    if not _accepts_arguments(parameters):
        raise ConfigError(f"{label}: the function must take (args) or (args, ctx), not {signature}")
    return parameters[1] if len(parameters) == 2 else None


def _has_own_value(parameter: inspect.Parameter) -> bool:
    default = parameter.default
    return parameter.name != CTX and default is not inspect.Parameter.empty and default is not None


def _accepts_arguments(parameters: list[inspect.Parameter]) -> bool:
    if len(parameters) not in (1, 2) or parameters[0].kind not in _POSITIONAL:
        return False
    return all(p.kind in _POSITIONAL or p.name == CTX for p in parameters[1:])


def _lines(error: jsonschema_rs.ValidationError) -> list[str]:
    """One line for each argument that ``error`` is about."""
    details = error.kind.as_dict()
    path = list(error.instance_path)
    if error.kind.name == "required":
        return [f"{place([*path, details['property']])}: {MISSING}"]
    if "unexpected" in details:
        return [f"{place([*path, name])}: {UNKNOWN}" for name in details["unexpected"]]
    return [f"{place(path)}: {_said(error)}"]


def _said(error: jsonschema_rs.ValidationError) -> str:
    """What the validator says of a value, with the beginning of that value."""
    return clean_text(error.message.replace(_VALUE, short(compact(error.instance)), 1))
