"""Declarations and values that hardly anybody writes, and what becomes of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field, SecretStr

from harness_worker.core.registration.agent_options import check_agent
from harness_worker.core.registration.content import to_json
from harness_worker.core.registration.docstrings import parse_docstring
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.run_context import RunContext
from harness_worker.errors import ArgumentsInvalid, ConfigError, UnserialisableResult

CONTEXT = RunContext.for_tests()


@pytest.fixture
def registry() -> Registry:
    """An empty registry."""
    return Registry()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": ""}, "its name must be a string of 1 to 255 printable characters"),
        ({"name": "a\x00b"}, "its name must be a string of 1 to 255 printable characters"),
        ({"name": "a\nb"}, "its name must be a string of 1 to 255 printable characters"),
        ({"name": "\x1b[2J"}, "its name must be a string of 1 to 255 printable characters"),
        ({"name": "."}, "its name may not be '.', which the path of a URL cannot hold"),
        ({"name": ".."}, "its name may not be '..', which the path of a URL cannot hold"),
    ],
)
def test_agent_that_cannot_work_is_refused(registry: Registry, changes: dict[str, Any], problem: str) -> None:
    """The message names the agent and the mend."""
    given: dict[str, Any] = {"name": "support", "model": "m", "system": "", "tools": [], **changes}
    with pytest.raises(ConfigError, match=problem):
        registry.agent(**given)


def test_budget_that_is_no_dict_is_refused() -> None:
    """It is refused also in a specification that no registry made."""
    budget: Any = [1]
    with pytest.raises(ConfigError, match="agent 'a': budget must be a dict of limits, not list"):
        check_agent(AgentSpec(name="a", model="m", system="", tools=(), budget=budget))


def test_hint_without_a_json_schema_is_refused(registry: Registry) -> None:
    """Pydantic knows the type, but no model could fill it in."""

    def call(back: Callable[[int], int]) -> int:
        return back(1)

    with pytest.raises(ConfigError, match=r"parameter 'back': its hint .* has no JSON Schema"):
        registry.tool(call)


def test_function_without_a_signature_is_refused(registry: Registry) -> None:
    """Some builtins do not tell their parameters."""
    with pytest.raises(ConfigError, match="Python cannot tell its parameters"):
        registry.add_tool(max, name="max", schema={"type": "object"}, description="")


def test_partial_is_named_after_its_function(registry: Registry) -> None:
    """What was partly applied is still called the same."""

    def greet(greeting: str, name: str) -> str:
        """Greet somebody."""
        return f"{greeting} {name}"

    registry.tool(functools.partial(greet, "hello"))
    assert set(registry.tools) == {"greet"}
    assert registry.tools["greet"].invoke({"name": "Ada"}, CONTEXT) == "hello Ada"


def test_function_may_use_what_is_defined_after_it(registry: Registry) -> None:
    """A closure's variable that has no value yet is no hint."""

    def get(x: int) -> int:
        """Get."""
        return x + later

    registry.tool(get)
    later = 1
    assert registry.tools["get"].invoke({"x": 1}, CONTEXT) == 2


def test_validator_that_breaks_is_a_wrong_argument(registry: Registry) -> None:
    """The author's validator divides by zero: the model reads a denial, the worker lives."""

    def halve(x: Annotated[int, AfterValidator(lambda value: 1 // value)]) -> int:
        """Halve."""
        return x

    registry.tool(halve)
    with pytest.raises(ArgumentsInvalid, match="arguments: ZeroDivisionError"):
        registry.tools["halve"].bind({"x": 0})


def test_argument_that_does_not_survive_json_is_kept_as_given(registry: Registry) -> None:
    """A secret shows as stars, which would not be valid again: what the model said is what runs."""

    def login(pin: Annotated[SecretStr, Field(max_length=4)], tries: int) -> str:
        """Log in."""
        return pin.get_secret_value() * tries

    registry.tool(login)
    bound = registry.tools["login"].bind({"pin": "1234", "tries": "2"})
    assert bound.was_coerced
    assert registry.tools["login"].invoke(bound.values, CONTEXT) == "12341234"


def test_effect_may_be_named_by_its_word(registry: Registry) -> None:
    """A string that is an effect is that effect."""

    def look(x: int) -> int:
        """Look."""
        return x

    registry.tool(effect="READ_ONLY")(look)  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownMemberType]
    assert registry.tools["look"].effect is Effect.READ_ONLY


def test_raw_tool_may_take_its_context_by_name(registry: Registry) -> None:
    """The parameter ``ctx`` may stand after a star."""

    def whoami(_args: dict[str, Any], *, ctx: RunContext) -> str:
        return ctx.turn_id

    registry.add_tool(whoami, name="whoami", schema={"type": "object"}, description="")
    assert registry.tools["whoami"].invoke({}, CONTEXT) == "turn"


def test_result_that_never_ends_is_refused() -> None:
    """A value whose iteration calls itself is told, not suffered."""

    class Endless(dict[str, int]):
        def items(self) -> Any:  # noqa: ANN401 - never returns
            return self.items()

    with pytest.raises(UnserialisableResult, match=r"unserialisable result: Endless at \$"):
        to_json(Endless(x=1))


def test_docstring_with_gaps_is_read() -> None:
    """A blank line among the arguments, or a word before the first, belongs to none."""
    doc = parse_docstring("Find.\n\nArgs:\n    oh\n    x: The x,\n\n        whole.\n")
    assert doc.arguments == {"x": "The x, whole."}


@pytest.mark.parametrize(
    "after",
    [
        "The customer must have agreed.\nTwice.",
        "Side Effects:\n    Sends a mail.",
        "Warning:\n    Cannot be undone.\n\nBe careful.",
        "Note:\nNothing is indented.",
    ],
)
def test_docstring_keeps_what_follows_its_arguments(after: str) -> None:
    """A section ends where its indentation does: what comes then, a section nobody knows included, is description."""
    doc = parse_docstring(f"Refund.\n\nArgs:\n  x: The x,\n     whole.\n\n{after}\n\nReturns:\n    It.\n\nLast.")
    assert doc.arguments == {"x": "The x, whole."}
    assert doc.description == f"Refund.\n\n{after}\n\nLast."


def test_docstring_may_have_several_sections_of_arguments() -> None:
    """Each has an indentation of its own."""
    doc = parse_docstring("Find.\n\nArgs:\n    x: The x.\n\nKeyword Args:\n  y (int): The y.\n")
    assert (doc.description, doc.arguments) == ("Find.", {"x": "The x.", "y": "The y."})


def test_docstring_may_have_types_with_brackets() -> None:
    """A type ends at the first closing bracket that a colon follows."""
    doc = parse_docstring("Find.\n\nArgs:\n    x (int): The x (a number): it.\n    y (list(tuple(int, str))): The y.\n")
    assert doc.arguments == {"x": "The x (a number): it.", "y": "The y."}


SPHINX = """Pay; see
:class:`Bank`.

:param cents: How much,
    in all.
:param str to: Whom.
:type cents: int
:returns: The number.

Only once.
:meta: kept
"""
NUMPY = """Pay; see
:class:`Bank`.

Parameters
----------
cents : int
    How much,

    in all.
to, by : str
    Whom.
*more

Returns
-------
str
    The number.

Never twice.

Side effects
------------
Only once.

Other Parameters
----------------
fee: int, default 0
    The bank's.

:meta: kept
"""


def test_docstring_of_sphinx_form_is_split() -> None:
    """Fields of parameters describe them, those of types, results and errors are left out, anything else is text."""
    doc = parse_docstring(SPHINX)
    assert doc.arguments == {"cents": "How much, in all.", "to": "Whom."}
    assert doc.description == "Pay; see\n:class:`Bank`.\n\nOnly once.\n:meta: kept"


def test_docstring_of_numpy_form_is_split() -> None:
    """Underlined sections of parameters describe them; a section nobody knows, or what is no parameter, is text."""
    doc = parse_docstring(NUMPY)
    whom = {"to": "Whom.", "by": "Whom."}
    assert doc.arguments == {"cents": "How much, in all.", **whom, "*more": "", "fee": "The bank's."}
    assert (
        doc.description
        == "Pay; see\n:class:`Bank`.\n\nNever twice.\n\nSide effects\n------------\nOnly once.\n\n:meta: kept"
    )


@pytest.mark.parametrize(
    "text", ["Title\n-----\nText: a\n\n- b", "Parameters\n\n----------\na : b", ":param: x", "Args:\n\nx"]
)
def test_docstring_of_no_form_is_all_description(text: str) -> None:
    """A heading, a rule or a field without a name says nothing of arguments."""
    doc = parse_docstring(text)
    assert (doc.description, doc.arguments) == (text, {})


def test_raw_arguments_the_validator_could_not_read_are_denied(registry: Registry) -> None:
    """The validator has a limit of its own, which no value reaches."""

    def raw(args: dict[str, Any]) -> object:
        return args

    schema = {"type": "object", "properties": {"x": {"enum": [1]}}}
    registry.add_tool(raw, name="raw", schema=schema, description="")
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(ArgumentsInvalid, match="x: nests deeper than 200 levels"):
        registry.tools["raw"].bind({"x": deep})
