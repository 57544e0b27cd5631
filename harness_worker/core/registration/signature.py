"""Binding a model's arguments to a function by its type hints, through pydantic.

Arguments are read in JSON mode: first strictly, to learn whether anything has to be converted, then as the hints say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from harness_worker.core.registration.argument_model import ArgumentModel, argument_model
from harness_worker.core.registration.author_code import Raised, attempt, words_of
from harness_worker.core.registration.callables import CTX, parameters_of, signature_of, underlying
from harness_worker.core.registration.docstrings import parse_docstring
from harness_worker.core.registration.problems import json_text, problems_of, short
from harness_worker.core.registration.tools import Arguments, BoundArguments
from harness_worker.core.run_context import RunContext
from harness_worker.errors import ArgumentsInvalid, ArgumentsOutdated


@dataclass(frozen=True, slots=True, kw_only=True)
class HintedFunction:
    """A function whose arguments are described by its hints.

    Args:
        fn: The function.
        arguments: Its parameters, ``ctx`` excluded.
        takes_ctx: Whether it takes the run context.
        description: The description in its docstring.
    """

    fn: Callable[..., object]
    arguments: ArgumentModel
    takes_ctx: bool
    description: str

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema of its arguments, an object."""
        return self.arguments.schema

    def bind(self, arguments: Arguments) -> BoundArguments:
        """The arguments as they will be run: as the model gave them, converted where needed, with defaults filled in.

        Raises:
            ArgumentsInvalid: One line for each argument that is missing, unknown or of the wrong type.
        """
        text = json_text(arguments)
        try:
            return BoundArguments(values={**self._dump(self._parse(text, strict=True)), **arguments})
        except ArgumentsInvalid:
            return BoundArguments(values=self._converted(arguments, self._parse(text, strict=None)), was_coerced=True)

    def typed(self, values: Arguments) -> dict[str, Any]:
        """Bound arguments as the function gets them: models, dates, enums.

        Raises:
            ArgumentsOutdated: They were bound by another version of the function and do not fit this one.
        """
        try:
            return self.arguments.values(self._parse(json_text(values)))
        except ArgumentsInvalid as invalid:
            raise ArgumentsOutdated(invalid.problems) from None

    def invoke(self, values: Arguments, ctx: RunContext) -> object:
        """Call the function and return what it returns; raises what it raises.

        Raises:
            ArgumentsOutdated: The arguments do not fit; nothing was called.
        """
        context = {CTX: ctx} if self.takes_ctx else {}
        return self.fn(**self.typed(values), **context)

    def _parse(self, text: str, *, strict: bool | None = False) -> BaseModel:
        """``strict=None`` converts unless the author's hint says otherwise."""
        match attempt(self.arguments.model.model_validate_json, text, strict=strict):  # validators are the author's
            case Raised(error=ValidationError() as invalid):
                raise ArgumentsInvalid(problems_of(invalid))
            case Raised(error=error):
                raise ArgumentsInvalid((f"arguments: {short(f'{type(error).__name__}: {words_of(error)}')}",))
            case parsed:
                return parsed

    def _dump(self, parsed: BaseModel) -> Arguments:
        """The parsed arguments as JSON; nothing if the author's serialisers fail, so that they run as given.

        Raises:
            ArgumentsInvalid: An item of an ``Iterable`` is of the wrong type, which pydantic sees only when it is read.
        """
        match attempt(self.arguments.dump, parsed):
            case Raised(error=ValidationError() as invalid):
                raise ArgumentsInvalid(problems_of(invalid))
            case Raised():
                return {}
            case dumped:
                return dumped

    def _converted(self, arguments: Arguments, parsed: BaseModel) -> Arguments:
        """The converted values, unless a type does not survive being written as JSON, such as pydantic's secrets."""
        dumped = self._dump(parsed)
        survives = attempt(lambda: self._parse(json_text(dumped)) == parsed)  # may run code of the author's types
        return dumped if survives is True else {**dumped, **arguments}


def inspect_function(
    fn: Callable[..., object], label: str, namespace: Mapping[str, Any] | None = None
) -> HintedFunction:
    """Read a function's hints and docstring.

    Args:
        fn: A synchronous function; each parameter except ``ctx`` has a hint.
        label: The tool's name in error messages.
        namespace: Local names that its hints may use.

    Raises:
        ConfigError: It cannot be a tool; the message names the tool and the parameter, and says what to change.
    """
    signature = signature_of(fn, label)
    parameters = parameters_of(fn, signature, label, namespace or {})
    doc = parse_docstring(underlying(fn).__doc__)
    return HintedFunction(
        fn=fn,
        arguments=argument_model(parameters, doc.arguments, label),
        takes_ctx=CTX in signature.parameters,
        description=doc.description,
    )
