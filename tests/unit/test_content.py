"""What a tool's value becomes for the model to read."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, computed_field, field_serializer, model_serializer
from pydantic_core import to_jsonable_python

from harness_worker.core.registration.content import compact_or_text, to_json
from harness_worker.core.text import clean_text
from harness_worker.errors import UnserialisableResult

texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


class Colour(enum.Enum):
    RED = "red"


class Rank(enum.IntEnum):
    FIRST = 1


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Line:
    sku: str
    _due: datetime.date
    extra: Any = None


class Tags(BaseModel):
    names: set[str]


class Order(BaseModel):
    id: uuid.UUID
    total: decimal.Decimal
    lines: list[Line] = []
    note: Any = None


class Broken(BaseModel):
    value: int = 1

    @field_serializer("value")
    def fail(self, _value: int) -> int:
        """A serialiser with a mistake in it."""
        raise KeyError("secret")


class Costly(BaseModel):
    @computed_field
    @property
    def rows(self) -> list[int]:
        """More than there is memory for."""
        raise MemoryError


class Vast(BaseModel):
    @model_serializer
    def fail(self) -> str:
        """A text that there is no memory for."""
        raise MemoryError


class Lent(dict[str, int]):
    error: BaseException = ConnectionError("the cursor is closed")

    def items(self) -> NoReturn:
        """A value that is gone when it is read."""
        raise self.error


class Lost(Lent):
    error = SystemExit(3)


class Rows(list[int]):
    def __iter__(self) -> Iterator[int]:
        raise TimeoutError


class Unbound:
    def __getattribute__(self, name: str) -> NoReturn:
        raise RuntimeError


DAY = datetime.date(2026, 3, 1)
ORDER = Order(id=uuid.UUID(int=7), total=decimal.Decimal("9.50"), lines=[Line("a", DAY)])


def content_text(value: object) -> str:
    """What the model reads of what a tool returned."""
    return compact_or_text(to_json(value))


@given(json_values)
def test_content_of_any_json_value_round_trips(value: object) -> None:
    """A JSON value reaches the model as JSON text of the same value; a string as itself."""
    text = content_text(value)
    assert (text if isinstance(value, str) else json.loads(text)) == value


@given(texts)
def test_content_of_a_string_is_the_string(text: str) -> None:
    """Strings are verbatim, not quoted."""
    assert content_text(text) == text


@given(st.text())
def test_clean_text_is_always_storable_and_keeps_what_was(text: str) -> None:
    """Cleaned text encodes as UTF-8, has no U+0000, and only replaces what could not be stored."""
    cleaned = clean_text(text)
    assert "\x00" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert clean_text(cleaned) == cleaned


def test_content_replaces_nul_and_lone_surrogates_everywhere() -> None:
    """U+0000 and lone surrogates become U+FFFD in strings and keys; a surrogate pair becomes its character."""
    assert content_text("a\x00b\ud800") == "a\ufffdb\ufffd"
    assert content_text({"k\x00": ["\udfff"]}) == '{"k\ufffd":["\ufffd"]}'
    assert content_text("\ud83d\ude00") == "😀"


@pytest.mark.parametrize(
    "value",
    cast(
        "list[object]",
        [
            None,
            DAY,
            datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC),
            datetime.timedelta(seconds=90),
            decimal.Decimal("1.50"),
            uuid.UUID(int=1),
            Colour.RED,
            Rank.FIRST,
            Point(1, 2),
            (1, (2,)),
            deque([1]),
            {3, 1, 2},
            frozenset({"a"}),
            b"caf\xc3\xa9",
            bytearray(b"x"),
            Path("/a"),
            OrderedDict(b=1, a=2),
            Line("a", DAY, extra={Colour.RED: b"x"}),
            ORDER,
            {2: 1, None: 2, True: 3, 1.5: 4, (1, 2): 5, DAY: 6, Colour.RED: 7},
            10**100,
        ],
    ),
    ids=repr,
)
def test_content_is_as_in_pydantics_json_mode(value: object) -> None:
    """Results pass through pydantic's JSON mode."""
    assert to_json(value) == to_jsonable_python(value)


def test_content_of_a_set_is_the_same_in_every_process() -> None:
    """Sets are sorted: their own order differs between processes."""
    assert content_text({"b", "a", "c"}) == '["a","b","c"]'
    assert content_text({1, "a"}) == content_text({"a", 1})
    assert content_text(Tags(names=set("zyxwvutsrqpo"))) == content_text({"names": sorted("zyxwvutsrqpo")})


class _Partial(BaseModel):
    a: int
    b: set[int]


def test_content_of_a_model_that_was_made_unchecked_is_what_there_is() -> None:
    """It may lack fields, and hold a set where its hint says another thing."""
    assert to_json(_Partial.model_construct(a=1)) == {"a": 1}


def _cycle() -> list[Any]:
    value: list[Any] = [1]
    value.append({"me": value})
    return value


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


async def _coroutine() -> None: ...


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "float at $"),
        ({"a": [0, 1, 2, float("inf")]}, "float at $.a[3]"),
        ({"odd key": object()}, 'object at $["odd key"]'),
        ((n for n in ()), "generator at $"),
        ({"a": iter([])}, "list_iterator at $.a"),
        ([map(str, [])], "map at $[0]"),
        (b"\xff", "bytes at $"),
        ({"total": decimal.Decimal("NaN")}, "Decimal at $.total"),
        ([decimal.Decimal("-inf")], "Decimal at $[0]"),
        (_cycle(), "list at $[1].me"),
        (lambda: 1, "function at $"),
        (int, "type at $"),
        (Line, "type at $"),
        (Line("a", DAY, extra={"deep": [object()]}), "object at $.extra.deep[0]"),
        (ORDER.model_copy(update={"note": [1, object()]}), "object at $.note[1]"),
        (ORDER.model_copy(update={"note": float("nan")}), "float at $.note"),
        (ORDER.model_copy(update={"note": {"a": [1.0, float("inf")]}}), "float at $.note.a[1]"),
        (ORDER.model_copy(update={"note": [{1: 2, "1": 3}]}), "dict at $.note[0]"),
        ([Broken()], "Broken at $[0]"),
        ({object(): 1}, "object at $"),
        ({"counts": {"None": 2, None: 3}}, "NoneType at $.counts.None"),
        pytest.param(10**5000, "int at $", id="huge int"),
        (ValueError("x"), "ValueError at $"),
        ({"a": [Lent(a=1)]}, "Lent at $.a[0]"),
        (Lost(a=1), "Lost at $"),
        ({"rows": Rows()}, "Rows at $.rows"),
        ([Unbound()], "Unbound at $[0]"),
    ],
)
def test_content_refuses_what_json_cannot_hold(value: object, message: str) -> None:
    """The error names the type at fault and where it is."""
    with pytest.raises(UnserialisableResult) as refused:
        content_text(value)
    assert str(refused.value) == f"unserialisable result: {message}"


def test_content_refuses_a_dict_that_changes_while_it_is_read() -> None:
    """A cache does that if another thread writes to it."""
    live: dict[str, int] = {}

    class Price(int):
        def bit_length(self) -> int:
            """Asked while the dict is read: the moment at which another thread writes."""
            live["b"] = 1
            return super().bit_length()

    live["a"] = Price(1)
    with pytest.raises(UnserialisableResult, match=r"^unserialisable result: dict at \$$"):
        content_text(live)


@pytest.mark.parametrize("value", [Costly(), Vast(), ORDER.model_copy(update={"note": [Vast()]})])
def test_content_that_there_is_no_memory_for_is_not_refused(value: object) -> None:
    """That says nothing about the value: a write that returned it is in doubt, and not a failure to be tried again."""
    with pytest.raises(MemoryError):
        content_text([value])


def test_content_refuses_huge_nesting_with_a_short_message() -> None:
    """Nesting that would exhaust the stack is refused; the path is cut."""
    assert content_text(_nested(99)) == "[" * 100 + "]" * 100
    with pytest.raises(UnserialisableResult, match=r"unserialisable result: list at \$\[0\]") as refused:
        content_text(_nested(100_000))
    assert len(str(refused.value)) < 300


def test_content_refuses_what_never_ends() -> None:
    """A value whose iteration calls itself is told, not suffered."""

    class Endless(dict[str, int]):
        def items(self) -> Any:  # noqa: ANN401 - never returns
            return self.items()

    with pytest.raises(UnserialisableResult, match=r"unserialisable result: Endless at \$"):
        to_json(Endless(x=1))


def test_content_closes_a_coroutine_it_refuses() -> None:
    """A coroutine returned by mistake does not warn later that it was never awaited."""
    with pytest.raises(UnserialisableResult, match="coroutine at"):
        content_text(_coroutine())


def test_content_of_one_object_in_two_places_is_no_cycle() -> None:
    """Sharing is not a cycle."""
    shared = [1]
    assert content_text([shared, shared]) == "[[1],[1]]"
