"""Schemas and binding from a function's type hints."""

from __future__ import annotations

import asyncio
import datetime
import enum
import functools
import sys
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    HttpUrl,
    PlainSerializer,
    RootModel,
    SecretStr,
    StrictInt,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import PydanticCustomError
from typing_extensions import Doc

from harness_worker.core.registration.signature import HintedFunction, inspect_function
from harness_worker.core.replay import fingerprint
from harness_worker.core.run_context import RunContext
from harness_worker.errors import ArgumentsInvalid, ConfigError

if TYPE_CHECKING:
    from decimal import Decimal

CTX = RunContext.for_tests()


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Item(BaseModel):
    sku: str
    qty: int = 1


def order(  # noqa: D417 - a docstring may leave parameters out
    items: list[Item],
    due: datetime.date,
    size: Size = Size.SMALL,
    mode: Literal["fast", "slow"] = "fast",
    note: str | None = None,
    *,
    ctx: RunContext,
) -> dict[str, Any]:
    """Place an order.

    It is shipped on the day it is due.

    Args:
        items: What to send; each with its
            number.
        due (date): The day.
        ctx: The run context.

    Returns:
        What was done.
    """
    return {"items": items, "due": due, "size": size, "mode": mode, "note": note, "ctx": ctx}


def inspected(fn: Any) -> HintedFunction:  # noqa: ANN401 - any callable
    """The function, read."""
    return inspect_function(fn, "tool 'x'")


def problems(fn: Any, arguments: dict[str, Any]) -> tuple[str, ...]:  # noqa: ANN401 - any callable
    """What binding ``arguments`` complains of."""
    with pytest.raises(ArgumentsInvalid) as invalid:
        inspected(fn).bind(arguments)
    return invalid.value.problems


def refusal(fn: Any) -> str:  # noqa: ANN401 - any object
    """Why the function cannot be a tool."""
    with pytest.raises(ConfigError, match=r"^tool 'x': ") as refused:
        inspected(fn)
    return str(refused.value)


def test_schema_tells_types_defaults_and_docs_without_ctx() -> None:
    """The schema is an object of the parameters, described by the docstring; ``ctx`` is not in it."""
    tool = inspected(order)
    assert tool.description == "Place an order.\n\nIt is shipped on the day it is due."
    assert tool.schema["type"] == "object"
    assert tool.schema["required"] == ["items", "due"]
    assert tool.schema["additionalProperties"] is False
    properties = tool.schema["properties"]
    assert list(properties) == ["items", "due", "size", "mode", "note"]
    assert properties["due"] == {"type": "string", "format": "date", "description": "The day."}
    assert properties["items"]["description"] == "What to send; each with its number."
    assert properties["mode"] == {"type": "string", "enum": ["fast", "slow"], "default": "fast"}


def test_schema_of_a_function_without_parameters_is_an_empty_object() -> None:
    """A tool may take nothing."""

    def now() -> str:
        return "now"

    tool = inspected(now)
    assert tool.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert tool.bind({}).values == {}
    assert tool.invoke({}, CTX) == "now"


def test_bind_fills_defaults_and_invoke_builds_typed_values() -> None:
    """Bound arguments are JSON; the function gets models, dates and enums."""
    tool = inspected(order)
    bound = tool.bind({"items": [{"sku": "a", "qty": 2}], "due": "2026-03-01", "size": "l"})
    assert bound.values == {
        "items": [{"sku": "a", "qty": 2}],
        "due": "2026-03-01",
        "size": "l",
        "mode": "fast",
        "note": None,
    }
    assert not bound.was_coerced
    assert tool.invoke(bound.values, CTX) == {
        "items": [Item(sku="a", qty=2)],
        "due": datetime.date(2026, 3, 1),
        "size": Size.LARGE,
        "mode": "fast",
        "note": None,
        "ctx": CTX,
    }


@pytest.mark.parametrize(("given_value", "run_value"), [("3", 3), (3.0, 3), (True, 1)])
def test_bind_converts_within_bounds_and_says_so(given_value: object, run_value: int) -> None:
    """What pydantic's lax mode converts is converted, and the result is marked."""

    def take(n: int) -> int:
        return n

    bound = inspected(take).bind({"n": given_value})
    assert (bound.values, bound.was_coerced) == ({"n": run_value}, True)
    assert type(bound.values["n"]) is int


@pytest.mark.parametrize("arguments", [{"n": "3", "count": 3}, {"n": 3.0, "count": 3}, {"n": 3, "count": "3"}])
def test_bind_converts_nothing_whose_author_is_strict(arguments: dict[str, object]) -> None:
    """A hint may ask for that with pydantic's own words."""

    def take(n: StrictInt, count: Annotated[int, Field(strict=True)]) -> int:
        return n + count

    assert inspected(take).bind({"n": 3, "count": 3}).values == {"n": 3, "count": 3}
    (line,) = problems(take, arguments)
    assert "input should be a valid integer" in line


def test_bind_names_each_bad_argument() -> None:
    """Missing, extra (``ctx`` included) and mistyped arguments: a line each, naming it."""
    lines = problems(order, {"items": [{"sku": 1}], "size": "xl", "ctx": {}, "colour": "red"})
    assert lines == (
        "items[0].sku: input should be a valid string (got 1)",
        "due: required, but missing",
        "size: input should be 's' or 'l' (got \"xl\")",
        "ctx: not an argument of this tool",
        "colour: not an argument of this tool",
    )


def test_bind_begins_what_is_wrong_in_lower_case() -> None:
    """It follows the argument's name; an abbreviation stays one."""

    def take(site: HttpUrl, n: int) -> str:
        return f"{site}{n}"

    assert problems(take, {"site": "ftp://a", "n": "x"}) == (
        "site: URL scheme should be 'http' or 'https' (got \"ftp://a\")",
        'n: input should be a valid integer, unable to parse string as an integer (got "x")',
    )


def test_bind_tells_what_is_wrong_in_words_of_json() -> None:
    """A model wrote an object and lists, whatever the function's hints make of them."""

    def take(pair: tuple[int, ...], names: set[str], by: dict[str, int]) -> list[int]:
        return [*pair, len(names), *by.values()]

    assert problems(take, {"pair": {}, "names": "x", "by": []}) == (
        "pair: input should be a list (got {})",
        'names: input should be a list (got "x")',
        "by: input should be an object (got [])",
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", ["\udc00"]])
def test_bind_refuses_what_is_not_json(value: object) -> None:
    """NaN and lone surrogates are not JSON; the argument is named."""

    def take(v: Any) -> Any:  # noqa: ANN401 - takes anything
        return v

    assert problems(take, {"v": value}) == ("v: not JSON",)


def test_bind_bounds_the_problems_it_tells() -> None:
    """A model that sends hundreds of wrong values reads some of them."""

    def take(ns: list[int]) -> int:
        return len(ns)

    lines = problems(take, {"ns": ["x" * 1_000] * 500})
    assert len(lines) == 21
    assert lines[-1] == "and 480 more"
    assert max(map(len, lines)) < 300


@pytest.mark.parametrize(("count", "most_chars"), [(1, 10_000), (30, 10_100)])
def test_bind_cuts_what_a_validator_says(count: int, most_chars: int) -> None:
    """A model reads of a refused call no more than of a failed one; one long line keeps most of it."""

    def refuse(_: str) -> str:
        raise ValueError("L" * 100_000)

    def take(xs: list[str]) -> object:
        return xs

    take.__annotations__["xs"] = list[Annotated[str, AfterValidator(refuse)]]
    told = "; ".join(problems(take, {"xs": ["a"] * count}))
    assert 9_000 < len(told) <= most_chars
    assert told.startswith("xs[0]: LLLL")


@pytest.mark.parametrize("error", [KeyError("a"), SystemExit("a"), CancelledError("a")])
def test_bind_survives_a_validator_that_raises(error: BaseException) -> None:
    """A mistake in the author's validator is the call's problem, not the worker's."""

    class Raising(BaseModel):
        v: str

        def model_post_init(self, _context: object) -> None:
            raise error

    def take(s: Raising) -> object:
        return s

    with pytest.raises(ArgumentsInvalid, match=rf"^arguments: {type(error).__name__}: '?a'?$"):
        inspect_function(take, "tool 'x'", {"Raising": Raising}).bind({"s": {"v": "a"}})


class Money:
    """What JSON cannot hold."""

    def __init__(self, cents: int) -> None:
        self.cents = cents


def _in_credit(money: Money) -> Money:
    if money.cents < 0:
        raise ValueError("must not be negative")
    return money


def nested(levels: int) -> object:
    """So many lists, each in the other."""
    return functools.reduce(lambda inner, _: [inner], range(levels), cast("object", "x"))


@pytest.mark.parametrize(
    ("hint", "given_value", "told"),
    [
        (Annotated[Any, AfterValidator(_in_credit), BeforeValidator(Money)], -5, "must not be negative (got Money)"),
        (Annotated[int, BeforeValidator(float)], "nan", "input should be a finite number (got float)"),
        (Annotated[int, BeforeValidator(iter)], [1], "input should be a valid integer (got list_iterator)"),
        (int, nested(150), "input should be a valid integer (got list)"),
        (int, [10**4_250], "input should be a valid integer (got list)"),
    ],
)
def test_bind_tells_of_a_value_that_it_cannot_show(hint: object, given_value: object, told: str) -> None:
    """A refused value may be what a validator made, or larger than a result may be: its type is named instead."""

    def take(x: Any) -> object:  # noqa: ANN401 - the case
        return x

    take.__annotations__["x"] = hint
    (line,) = problems(take, {"x": given_value})
    assert line.startswith("x: ")
    assert line.endswith(told)


class UnspeakableError(Exception):
    """As an author's error may be."""

    def __str__(self) -> str:
        raise SystemExit


def test_bind_reads_the_items_of_an_iterable() -> None:
    """Pydantic leaves them to whoever iterates, which would be the tool."""

    def take(xs: Iterable[int]) -> object:
        return list(xs)

    function = inspect_function(take, "tool 'x'", {"Iterable": Iterable})
    assert function.invoke(function.bind({"xs": [1, 2]}).values, CTX) == [1, 2]
    assert function.invoke(function.bind({"xs": ["1"]}).values, CTX) == [1]
    with pytest.raises(ArgumentsInvalid, match="should be a valid integer"):
        function.bind({"xs": [1, "a"]})


@pytest.mark.parametrize("given_value", [1, "1"])
def test_bind_survives_a_serialiser_that_raises(given_value: object) -> None:
    """What it cannot write is run as it was given."""

    def fail(_: int) -> int:
        raise RuntimeError("a")

    def take(x: Any) -> object:  # noqa: ANN401 - the case
        return x

    take.__annotations__["x"] = Annotated[int, PlainSerializer(fail)]
    function = inspect_function(take, "tool 'x'")
    bound = function.bind({"x": given_value})
    assert (bound.values, function.invoke(bound.values, CTX)) == ({"x": given_value}, 1)


@pytest.mark.parametrize("error", [PydanticCustomError("x", ""), UnspeakableError(), ValueError()])
def test_bind_survives_a_validator_whose_error_says_nothing(error: Exception) -> None:
    """Words that are missing or that cannot be had end no turn."""

    def refuse(_: str) -> str:
        raise error

    def take(x: str) -> object:
        return x

    take.__annotations__["x"] = Annotated[str, AfterValidator(refuse)]
    (line,) = problems(take, {"x": "a"})
    assert line in ('x:  (got "a")', "arguments: UnspeakableError: ")


def test_bind_keeps_a_secret_that_hides_from_its_own_json() -> None:
    """A type that does not survive JSON, as a secret, reaches the function as the model gave it."""

    def login(password: SecretStr, n: int) -> str:
        return password.get_secret_value() * n

    tool = inspected(login)
    assert tool.invoke(tool.bind({"password": "pw", "n": "2"}).values, CTX) == "pwpw"


@given(st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), st.integers() | st.booleans() | st.none()))
def test_bind_leaves_json_that_fits_untouched(value: dict[str, Any]) -> None:
    """Arguments that fit are run as given."""

    def take(v: dict[str, Any]) -> dict[str, Any]:
        return v

    tool = inspected(take)
    bound = tool.bind({"v": value})
    assert (bound.values, bound.was_coerced) == ({"v": value}, False)
    assert tool.invoke(bound.values, CTX) == value


@pydantic_dataclass
class Shelf:
    labels: frozenset[str]
    pairs: Annotated[set[tuple[int, str]], Field(alias="pairsOf")]


class Labels(RootModel[set[str]]):
    pass


class Stock(BaseModel):
    labels: Annotated[set[str], Field(alias="labelsOf")]
    shelves: dict[str, list[Shelf]]
    root: Labels
    kept: Annotated[set[str], PlainSerializer(lambda names: ["first", *sorted(names)])] = set()
    counted: Annotated[set[str], PlainSerializer(lambda names: {"n": len(names)})] = set()


def test_bind_writes_a_set_in_one_order() -> None:
    """Sets, wherever they stand, and defaults too, are sorted: equal arguments are equal in every process."""
    letters = "zyxwvutsrqponmlkji"

    def keep(stock: Stock, labels: set[str], spare: set[str] = frozenset(letters)) -> object:  # pyright: ignore[reportArgumentType] - usual
        return stock, labels, spare

    shelf = {"labels": [*letters], "pairsOf": [[2, "b"], [2, "a"], [1, "c"]]}
    stock = {"labelsOf": [*letters], "shelves": {"a": [shelf]}, "root": [*letters], "kept": ["b", "a"]}
    tool = inspected(keep)
    ordered = sorted(letters)
    assert tool.arguments.dump(tool.arguments.model.model_validate({"stock": stock, "labels": [*letters]})) == {
        "stock": {
            "labelsOf": ordered,
            "shelves": {"a": [{"labels": ordered, "pairsOf": [[1, "c"], [2, "a"], [2, "b"]]}]},
            "root": ordered,
            "kept": ["first", "a", "b"],
            "counted": {"n": 0},
        },
        "labels": ordered,
        "spare": ordered,
    }
    assert tool.bind({"stock": stock, "labels": [*letters]}).values["spare"] == ordered
    assert tool.schema["properties"]["spare"]["default"] == ordered


def pay(amount: float, more: Any = None) -> object:  # noqa: ANN401 - the case
    """A tool whose arguments may be spelled in several ways."""
    return amount, more


PAID = {"amount": 25, "more": {"n": [1]}}


@pytest.mark.parametrize("spelled", [{"amount": 25.0}, {"amount": "25"}, {"more": {"n": [1.0]}}])
def test_numbers_that_run_as_the_same_are_equal_however_spelled(spelled: dict[str, Any]) -> None:
    """What is the same number to the function is the same call; another one is another call."""
    tool = inspected(pay)
    first, second = tool.bind(PAID).values, tool.bind({**PAID, **spelled}).values
    assert fingerprint("pay", first) == fingerprint("pay", second)
    assert tool.invoke(first, CTX) == tool.invoke(second, CTX)
    assert fingerprint("pay", first) != fingerprint("pay", tool.bind({**PAID, **spelled, "amount": 25.5}).values)


class Patch(BaseModel):
    name: str | None = None
    email: str | None = None


def test_fields_that_were_not_given_are_not_set() -> None:
    """A partial update changes only what the model named."""

    def update(patch: Patch) -> object:
        return patch.model_dump(exclude_unset=True)

    tool = inspected(update)
    assert tool.invoke(tool.bind({"patch": {"name": "Ann"}}).values, CTX) == {"name": "Ann"}


class Incomparable(int):
    """As an array of several numbers is."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = int.__hash__


def test_converted_arguments_that_cannot_be_compared_are_as_given() -> None:
    """What an author's type raises is no fault of the call's."""

    def take(size: Annotated[int, AfterValidator(Incomparable)], n: int) -> object:
        return size, n

    assert inspected(take).bind({"size": 3, "n": "4"}).values == {"size": 3, "n": "4"}


class Note(BaseModel):
    text: str
    id: uuid.UUID = Field(default_factory=uuid.uuid4)


def test_repeat_of_arguments_with_a_default_made_anew_is_equal() -> None:
    """A nested default that differs each time stays out of the arguments."""

    def keep(note: Note) -> object:
        return note

    tool = inspected(keep)
    assert tool.bind({"note": {"text": "a"}}).values == {"note": {"text": "a"}}


def test_parameters_may_have_any_name() -> None:
    """Names that pydantic keeps for itself, or would hide, are names like others."""

    def take(schema: int, copy: int, model_config: int, _private: int, p0: int) -> list[int]:
        return [schema, copy, model_config, _private, p0]

    tool = inspected(take)
    values = {"schema": 1, "copy": 2, "model_config": 3, "_private": 4, "p0": 5}
    assert list(tool.schema["properties"]) == list(values)
    assert tool.invoke(tool.bind(values).values, CTX) == [1, 2, 3, 4, 5]


def test_hints_may_carry_field_constraints() -> None:
    """``Annotated[..., Field()]`` and a ``Field`` default keep bounds, descriptions and defaults."""

    def take(  # noqa: D417 - likewise
        a: Annotated[int, Field(ge=1, description="own")] = 2,
        b: int = Field(3, le=5),
        *,
        c: Annotated[int, Field(default=4)],
    ) -> int:
        """Take.

        Args:
            a: from the docstring
        """
        return a + b + c

    tool = inspected(take)
    assert "required" not in tool.schema
    assert tool.schema["properties"]["a"] == {"type": "integer", "minimum": 1, "default": 2, "description": "own"}
    assert tool.bind({}).values == {"a": 2, "b": 3, "c": 4}
    assert problems(take, {"b": 6}) == ("b: input should be less than or equal to 5 (got 6)",)


def test_parameter_may_have_an_alias_for_the_model() -> None:
    """An alias in a parameter's ``Field`` is the argument's name; the function and its rules keep their own."""

    def take(a: int = Field(default=1, alias="b")) -> int:
        return a

    tool = inspected(take)
    assert list(tool.schema["properties"]) == ["b"]
    assert (tool.bind({}).values, tool.bind({"b": "2"}).values) == ({"b": 1}, {"b": 2})
    assert (tool.typed({"b": 2}), tool.invoke({"b": 2}, CTX)) == ({"a": 2}, 2)


def test_annotations_describe_parameters() -> None:
    """A lone text in ``Annotated``, or a ``Doc``, describes it; several texts may mean anything."""

    def take(  # noqa: D417 - likewise
        a: Annotated[int, "how many"],
        b: Annotated[str, Doc("which"), "internal"],
        c: Annotated[str, "one", "two"],
        d: Annotated[int, Field(description="own"), "other"] = 1,
        f: int = 1,
        e: Annotated[int, "or none"] = None,  # noqa: RUF013  # pyright: ignore[reportArgumentType] - usual
    ) -> object:
        """Take.

        Args:
            a: from the docstring
            c: from the docstring
            f:
        """
        return a, b, c, d, e, f

    described = {name: each.get("description") for name, each in inspected(take).schema["properties"].items()}
    assert described == {
        "a": "how many",
        "b": "which",
        "c": "from the docstring",
        "d": "own",
        "e": "or none",
        "f": None,
    }


def test_a_default_of_none_makes_the_hint_optional() -> None:
    """``x: int = None`` is written often and means ``int | None``."""

    def take(x: int = None) -> object:  # noqa: RUF013  # pyright: ignore[reportArgumentType] - the case
        return x

    tool = inspected(take)
    assert tool.bind({}).values == {"x": None}
    assert tool.invoke({"x": None}, CTX) is None
    assert tool.bind({"x": None}).values == {"x": None}


def test_a_default_of_none_is_not_for_a_validator_that_takes_no_none() -> None:
    """A validator of the author's may raise anything when it is asked about ``None``."""

    def take(x: Annotated[str, BeforeValidator(str.strip)] = None) -> object:  # noqa: RUF013  # pyright: ignore[reportArgumentType] - the case
        return x

    tool = inspected(take)
    assert tool.invoke(tool.bind({}).values, CTX) is None
    assert tool.invoke(tool.bind({"x": " a "}).values, CTX) == "a"


class Shop:
    def stock(self, sku: str) -> str:
        """How many."""
        return f"{sku}!"

    def __call__(self, sku: str, ctx: RunContext) -> str:
        """Look up."""
        return f"{sku}@{ctx.call_id}"


def two(sku: str, connection: object) -> str:
    """A tool with a parameter that no model can fill."""
    return f"{sku}{connection}"


def test_methods_partials_and_callable_objects_work() -> None:
    """What is callable and has hints is a tool; what a partial has fixed is not asked of the model."""
    shop = Shop()
    assert inspected(shop.stock).invoke({"sku": "a"}, CTX) == "a!"
    assert inspected(shop.stock).description == "How many."
    assert inspected(shop).invoke({"sku": "a"}, CTX) == "a@0.0"
    fixed = inspected(functools.partial(two, connection=7))
    assert list(fixed.schema["properties"]) == ["sku"]
    assert fixed.invoke({"sku": "a"}, CTX) == "a7"


def test_hints_for_type_checkers_only_harm_neither_ctx_nor_the_result() -> None:
    """``ctx`` and the return value need not be resolvable; a parameter must be."""

    def fine(a: int, ctx: Missing) -> Missing:  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]
        return (a, ctx)  # pyright: ignore[reportUnknownVariableType]

    def bad(a: Decimal) -> None:
        del a

    assert inspected(fine).invoke({"a": 1}, CTX) == (1, CTX)
    assert "parameter 'a'" in refusal(bad)
    assert "cannot be resolved" in refusal(bad)


def test_hints_that_python_evaluates_late_may_be_for_type_checkers_too() -> None:
    """Since Python 3.14 they need no ``__future__`` import for that; one that a parameter needs is missed by name."""
    late = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
    tools = "def fine(a: int, ctx: Missing) -> Missing: return a, ctx\ndef bad(a: list[Missing]): ...\n"
    app: dict[str, Any] = {}
    exec(compile(late + tools, "app", "exec", dont_inherit=True), app)  # noqa: S102 - this module has the import itself
    assert inspected(app["fine"]).invoke({"a": 1}, CTX) == (1, CTX)
    assert "parameter 'a': its hint" in refusal(app["bad"])


async def _async(a: int) -> int:
    return a


def _starred(*args: int) -> int:
    return len(args)


def _keywords(**options: int) -> int:
    return len(options)


def _positional(a: int, /) -> int:
    return a


def _unhinted(a) -> int:  # noqa: ANN001 - the case  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
    return a  # pyright: ignore[reportUnknownVariableType]


def _odd(a: object = object()) -> object:
    return a


def _context(context: RunContext) -> object:
    return context


def _optional_context(c: RunContext | None = None) -> object:
    return c


def _function(a: Callable[[int], int]) -> int:
    return a(1)


def _callback(a: Shop) -> object:
    return a


def _bad_default(a: int = "x") -> int:  # pyright: ignore[reportArgumentType] - the case
    return a


def _bad_default_in_hint(a: Annotated[int, Field(default="x")]) -> int:
    return a


def _read_by_another_name(a: str = Field(validation_alias=AliasChoices("b", "a"))) -> str:
    return a


def _written_by_another_name(a: str = Field(serialization_alias="b")) -> str:
    return a


class _AsyncCallable:
    async def __call__(self, a: int) -> int:
        return a


class _Cached:
    @functools.lru_cache  # noqa: B019 - the case
    async def ask(self, a: int) -> int:
        return a


@functools.wraps(_async)
def _waited(a: int) -> int:
    return asyncio.run(_async(a))


@pytest.mark.parametrize(
    ("fn", "said"),
    cast(
        "list[tuple[object, str]]",
        [
            (_async, "async functions are refused"),
            (functools.partial(_async, a=1), "async functions are refused"),
            (_AsyncCallable(), "async functions are refused"),
            (staticmethod(_async), "async functions are refused"),
            (functools.lru_cache(_async), "async functions are refused"),
            (functools.partial(functools.cache(_async), a=1), "async functions are refused"),
            (_Cached().ask, "async functions are refused"),
            (_starred, "'*args'"),
            (_keywords, "'**options'"),
            (_positional, "parameter 'a' is positional-only"),
            (_unhinted, "parameter 'a' has no type hint; add one, such as `a: str`"),
            (
                Shop.stock,
                "parameter 'self' has no type hint; register the bound method: `registry.tool(obj.stock)`",
            ),
            (_odd, "parameter 'a': its default"),
            (_bad_default, "parameter 'a': its default 'x' does not fit"),
            (_bad_default_in_hint, "parameter 'a': its default 'x' does not fit"),
            (_read_by_another_name, "parameter 'a': its Field has an alias that is only for reading or for writing"),
            (_written_by_another_name, "parameter 'a': its Field has an alias that is only for reading or for writing"),
            (_context, "parameter named `ctx`"),
            (_optional_context, "parameter 'c': the run context is given to the parameter named `ctx`; rename it"),
            (_callback, "parameter 'a': its hint"),
            (_function, "has no JSON Schema"),
            (Shop, "is not a function"),
            (7, "is not a function"),
        ],
    ),
)
def test_functions_that_cannot_be_tools_are_refused_with_the_mend(fn: object, said: str) -> None:
    """A bad function is refused when it is registered, naming the tool and the parameter."""
    assert said in refusal(fn)


def test_wrapper_that_waits_for_an_async_function_is_a_tool() -> None:
    """What ``functools.wraps`` says of a wrapper is not what it returns; a cache of a plain function is one too."""
    assert inspected(_waited).invoke({"a": 3}, CTX) == 3
    assert inspected(functools.cache(_context_of)).invoke({"a": 3}, CTX) == (3, CTX)


def _context_of(a: int, ctx: RunContext) -> object:
    return a, ctx
