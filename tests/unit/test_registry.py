"""Declaring tools and agents."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import operator
import re
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Annotated, Any, NoReturn
from unittest.mock import MagicMock, Mock, create_autospec

import pytest
from pydantic import BaseModel, Field

from harness_worker import Effect, Hooks, Registry, RunContext
from harness_worker.core.registration.tool_options import TIMEOUT_CEILING_S
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.core.text import clean_text
from harness_worker.errors import ArgumentsInvalid, ConfigError
from tests.unit.bad_rules import BAD_RULES, Unshowable

CTX = RunContext.for_tests()
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "default": 3}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["tags"],
}


@pytest.fixture
def registry() -> Registry:
    """An empty registry."""
    return Registry()


def get_order(order_id: str, items: int = 1) -> str:
    """One order."""
    return f"{order_id}{items}"


def echo(args: dict[str, Any]) -> dict[str, Any]:
    """What was given."""
    return args


def registered(registry: Registry, **options: Any) -> ToolSpec:  # noqa: ANN401 - any options
    """``get_order`` as a tool with these options."""
    registry.tool(**options)(get_order)
    return registry.tools[options.get("name") or "get_order"]


def test_tool_returns_the_function_and_keeps_the_defaults(registry: Registry) -> None:
    """The decorated function stays callable, and each option that is not given has its safe default."""
    assert registry.tool()(get_order) is get_order
    spec = registry.tools["get_order"]
    assert (spec.description, spec.effect, spec.idempotent, spec.retry_safe) == ("One order.", None, False, False)
    assert (spec.timeout_s, spec.queue, spec.approval, spec.lock) == (10, "tools", "never", None)
    assert spec.approval_timeout_s is None
    assert not spec.is_read
    assert spec.invoke(spec.bind({"order_id": "a"}).values, CTX) == "a1"


def test_tool_works_without_parentheses(registry: Registry) -> None:
    """Many people write ``@registry.tool``."""
    assert registry.tool(get_order) is get_order
    assert "get_order" in registry.tools


def test_tool_takes_a_function_and_its_options_at_once(registry: Registry) -> None:
    """None of them is lost: a tool that needs approval would run without it."""
    assert registry.tool(get_order, description="d", effect=Effect.DESTRUCTIVE, approval="always") is get_order
    spec = registry.tools["get_order"]
    assert (spec.description, spec.effect, spec.approval) == ("d", Effect.DESTRUCTIVE, "always")
    with pytest.raises(ConfigError, match="unknown option 'retries'"):
        registry.tool(echo, retries=3)  # pyright: ignore[reportCallIssue, reportUnknownMemberType]


@pytest.mark.parametrize("effect", [None, *Effect])
def test_only_reads_are_retry_safe_unless_said_otherwise(effect: Effect | None) -> None:
    """A write is run again after a crash only if its author promises that it deduplicates."""
    assert registered(Registry(), effect=effect).retry_safe is (effect is Effect.READ_ONLY)
    assert registered(Registry(), effect=effect, retry_safe=True).retry_safe
    assert not registered(Registry(), effect=effect, retry_safe=False).retry_safe


def test_hints_may_mean_classes_local_to_the_caller(registry: Registry) -> None:
    """With annotations as text, a class defined beside the tool in a function is found."""

    class Local(BaseModel):
        n: int

    @registry.tool()
    def take(value: Local) -> int:
        return value.n

    spec = registry.tools["take"]
    assert spec.invoke(spec.bind({"value": {"n": 2}}).values, CTX) == 2
    assert take(Local(n=1)) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "a b"}, "'a b': a name is 1 to 64 of"),
        ({"name": ""}, "a name is 1 to 64 of"),
        ({"name": "x" * 65}, "a name is 1 to 64 of"),
        ({"name": "get_order\n"}, "a name is 1 to 64 of"),
        ({"timeout_s": 0}, "timeout_s must be seconds above 0 and at most 45, not 0"),
        ({"timeout_s": 45.1}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"timeout_s": 10**400}, "timeout_s"),
        ({"timeout_s": "5"}, "timeout_s"),
        ({"timeout_s": True}, "timeout_s"),
        ({"effect": "WRITE"}, "effect must be None or one of Effect.READ_ONLY"),
        ({"queue": ""}, "queue must be"),
        ({"queue": "turns.batch"}, "queue must be"),
        ({"approval": "sometimes"}, "approval must be"),
        ({"approval_timeout_s": 0}, "approval_timeout_s must be None or seconds above 0 and at most 2592000, not 0"),
        ({"approval_timeout_s": 2_592_001}, "approval_timeout_s must be"),
        ({"approval_timeout_s": float("inf")}, "approval_timeout_s must be"),
        ({"approval_timeout_s": 10**400}, "approval_timeout_s must be"),
        ({"approval_timeout_s": "60"}, "approval_timeout_s must be"),
        ({"approval_timeout_s": True}, "approval_timeout_s must be"),
        ({"approval_timeout_s": 60}, "approval_timeout_s needs approval='always' or a function of the arguments"),
        ({"resource_keys": ["a"]}, "resource_keys must be a function"),
        ({"idempotent": 1}, "idempotent must be True or False"),
        ({"retry_safe": "yes"}, "retry_safe must be"),
        ({"lock": 7}, "lock must be"),
        ({"description": 5}, "description must be a string, not int"),
        ({"description": 0}, "description must be a string, not int"),
        ({"retries": 3}, "unknown option 'retries'; there are: name, description, effect"),
    ],
)
def test_bad_options_are_refused_by_name(registry: Registry, options: dict[str, Any], said: str) -> None:
    """A bad registration says which tool, what is wrong and what is allowed; nothing is registered."""
    with pytest.raises(ConfigError, match=r"^tool ") as refused:
        registry.tool(**options)(get_order)
    assert said in str(refused.value)
    assert not registry.tools


def test_effect_may_be_named_by_its_word(registry: Registry) -> None:
    """A string that is an effect is that effect."""

    def look(x: int) -> int:
        """Look."""
        return x

    registry.tool(effect="READ_ONLY")(look)  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownMemberType]
    assert registry.tools["look"].effect is Effect.READ_ONLY


def test_partial_is_named_after_its_function(registry: Registry) -> None:
    """What was partly applied is still called the same."""

    def greet(greeting: str, name: str) -> str:
        """Greet somebody."""
        return f"{greeting} {name}"

    registry.tool(functools.partial(greet, "hello"))
    assert set(registry.tools) == {"greet"}
    assert registry.tools["greet"].invoke({"name": "Ada"}, CTX) == "hello Ada"


def test_function_may_use_what_is_defined_after_it(registry: Registry) -> None:
    """A closure's variable that has no value yet is no hint."""

    def get(x: int) -> int:
        """Get."""
        return x + later

    registry.tool(get)
    later = 1
    assert registry.tools["get"].invoke({"x": 1}, CTX) == 2


def test_timeout_ceiling_can_be_raised_by_settings() -> None:
    """45 s is the ceiling unless the settings say so."""
    ceiling = TIMEOUT_CEILING_S.set(90)
    try:
        registry = Registry()
    finally:
        TIMEOUT_CEILING_S.reset(ceiling)
    assert registered(registry, timeout_s=90).timeout_s == 90


def test_timeout_ceiling_can_be_raised_where_no_worker_loads_the_registry() -> None:
    """An application whose workers allow 90 s can be imported in a notebook or a test; the error says how."""
    assert registered(Registry(max_tool_timeout_s=90), timeout_s=80).timeout_s == 80
    how = (
        r"at most 45, not 80; the most is HARNESS_MAX_TOOL_TIMEOUT_S in a worker, .* what Registry\(max_tool_timeout_s"
    )
    with pytest.raises(ConfigError, match=how):
        registered(Registry(), timeout_s=80)


@pytest.mark.parametrize(
    "seconds", [0, -1, float("inf"), float("nan"), pytest.param(10**400, id="huge"), True, "90", None]
)
def test_timeout_ceiling_that_is_no_number_of_seconds_is_refused(seconds: Any) -> None:  # noqa: ANN401 - whatever is given
    """It is refused before any tool is held to it."""
    with pytest.raises(ConfigError, match=r"^max_tool_timeout_s must be seconds above 0, not "):
        Registry(max_tool_timeout_s=seconds)


def test_a_name_given_twice_is_refused(registry: Registry) -> None:
    """A name belongs to one tool, whether it was registered by hints or by schema."""
    registry.tool()(get_order)
    for again in (
        lambda: registry.tool()(get_order),
        lambda: registry.add_tool(echo, name="get_order", schema=SCHEMA, description=""),
    ):
        with pytest.raises(ConfigError, match=r"tool 'get_order' is registered twice"):
            again()


def test_tools_that_are_taken_back_may_be_registered_again(registry: Registry) -> None:
    """So it is after a server of which one tool could not be registered; a listed function means what is left."""
    for name in ("kept", "first", "second"):
        registry.tool(get_order, name=name)
    registry._take_back(["first", "second"])  # pyright: ignore[reportPrivateUsage]
    (tool,) = registry.agent("a", model="m", tools=[get_order]).tools
    assert tool.name == "kept"
    assert registry.tool(get_order, name="first") is get_order
    assert list(registry.tools) == ["kept", "first"]


def test_a_function_without_a_name_needs_one(registry: Registry) -> None:
    """A lambda is asked for ``name=``."""

    def register(order_id: str) -> str:
        return order_id

    register.__name__ = "<lambda>"
    with pytest.raises(ConfigError, match=r"say name="):
        registry.tool()(register)
    registry.tool(name="fine")(register)


# --- resource keys ----------------------------------------------------------------------------------------------------


def _all_ways(a: Any) -> list[str]:  # noqa: ANN401 - attributes and mapping at once
    return [f"{a.order_id}/{a['items']}/{a.items}/{len(a)}"]


def _no_keys(_a: object) -> list[str]:
    return []


def _misspells(a: Any) -> list[str]:  # noqa: ANN401 - likewise
    return [a.nothing]


def _always(answer: object) -> Callable[[object], object]:
    return lambda _a: answer


def _many(a: Any) -> bool:  # noqa: ANN401 - likewise
    return a.items > 3


def _one_order(a: Any) -> str:  # noqa: ANN401 - likewise
    return f"order:{a['order_id']}"


def test_default_keys_of_a_read_are_its_name_and_arguments(registry: Registry) -> None:
    """Two equal reads share a key, whatever the order of their arguments; any other effect has none."""
    spec = registered(registry, effect=Effect.READ_ONLY)
    assert spec.keys({"order_id": "a", "items": 1}) == spec.keys({"items": 1, "order_id": "a"})
    assert spec.keys({"order_id": "a", "items": 1}) != spec.keys({"order_id": "b", "items": 1})
    assert registered(registry, name="w", effect=Effect.NETWORK).keys({"order_id": "a", "items": 1}) is None


def test_resource_keys_get_arguments_as_attributes_and_mapping(registry: Registry) -> None:
    """One object is both; an argument called like a dict's method is the argument."""
    spec = registered(registry, effect=Effect.READ_ONLY, resource_keys=_all_ways)
    assert spec.keys({"order_id": "a", "items": 4}) == ("a/4/4/2",)


def test_resource_keys_may_be_none_at_all(registry: Registry) -> None:
    """An empty list conflicts with nothing."""
    assert registered(registry, effect=Effect.READ_ONLY, resource_keys=_no_keys).keys({"order_id": "a"}) == ()


@pytest.mark.parametrize(
    "rule",
    [*BAD_RULES, _misspells, *(_always(answer) for answer in ("order:1", None, [1], {"a": 1}))],
)
def test_resource_keys_that_fail_make_the_call_sequential(
    registry: Registry, caplog: pytest.LogCaptureFixture, rule: Callable[..., Any]
) -> None:
    """A rule that raises or returns no list of strings is logged, and the call runs alone."""
    spec = registered(registry, effect=Effect.READ_ONLY, resource_keys=rule)
    with caplog.at_level(logging.WARNING):
        assert spec.keys({"order_id": "a"}) is None
    assert "get_order" in caplog.text


@pytest.mark.parametrize(("told", "shown"), [(Unshowable(), "<Unshowable>"), ([Unshowable()], "<tuple>"), (7, "7")])
def test_log_shows_what_a_rule_told_instead_of_keys(
    registry: Registry, caplog: pytest.LogCaptureFixture, told: object, shown: str
) -> None:
    """It says what was expected, and what came instead, even of what cannot show itself."""
    registered(registry, effect=Effect.READ_ONLY, resource_keys=_always(told)).keys({"order_id": "a"})
    assert f"expected a list of strings, not {shown}" in caplog.text


async def _later(_a: object) -> bool:
    return True


def _of_nothing() -> bool:
    return True


def _of_two(_a: object, _b: object) -> bool:
    return True


def _by_name(*, a: object) -> bool:
    return bool(a)


def _of_one_or_two(_a: object, _b: int = 1) -> bool:
    return True


def _of_any(*_a: object) -> bool:
    return True


class Rule:
    """A rule that is an object."""

    def __call__(self, a: object) -> bool:
        """Yes."""
        return bool(a)

    async def later(self, a: object) -> bool:
        """Yes, but nobody waits for it."""
        return bool(a)


class Delegating:
    """Its ``__call__`` belongs to another object."""

    __call__ = Rule().__call__


def _signed(*_a: object) -> bool:
    return True


_signed.__signature__ = inspect.signature(_of_two)  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess] - as a decorator may copy it


def _given_more(rule: Callable[[object, object], bool]) -> Callable[[object], bool]:
    @functools.wraps(rule)
    def with_more(a: object) -> bool:
        return rule(a, 1)

    return with_more


def _untold(_a: object) -> bool:
    return True


_untold.__code__ = _untold.__code__.replace(co_varnames=("a b",))  # as what writes functions may name a parameter

RULES = ("approval", "lock", "resource_keys")


@pytest.mark.parametrize("word", RULES)
@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (_later, ": async functions are refused, workers are synchronous; write it with plain `def`"),
        (functools.partial(_later), ": async functions are refused"),
        (Rule().later, ": async functions are refused"),
        (_of_nothing, r" must take one argument, the arguments, but its parameters are \(\)"),
        (_of_two, r" must take one argument, the arguments, but its parameters are \(_a: 'object', _b"),
        (_by_name, " must take one argument"),
        (Rule.__call__, " must take one argument"),
    ],
)
def test_rule_that_cannot_be_called_is_refused(registry: Registry, word: str, rule: Any, said: str) -> None:  # noqa: ANN401 - any rule
    """It is refused when it is declared, since it would fail at every call."""
    with pytest.raises(ConfigError, match=f"^tool 'get_order': {word}{said}"):
        registered(registry, **{word: rule})


@pytest.mark.parametrize("word", RULES)
@pytest.mark.parametrize(
    "rule",
    [
        _of_one_or_two,
        _of_any,
        Rule(),
        functools.partial(_of_two, 1),
        functools.cache(_of_any),
        _given_more(_of_two),
        operator.attrgetter("order_id"),
        Mock(spec=_of_two),
        MagicMock(spec=_later),
        create_autospec(Rule, instance=True).later,
        Delegating(),
        _signed,
        _untold,
        "order:{order_id}".format_map,
        str,
    ],
)
def test_rule_that_may_be_called_is_taken(registry: Registry, word: str, rule: Any) -> None:  # noqa: ANN401 - any rule
    """Any kind of callable may be a rule, even if Python cannot tell its parameters."""
    assert registered(registry, **{word: rule}).name == "get_order"


def _yields(_a: object) -> Iterator[str]:
    yield "order"


@pytest.mark.parametrize("word", ["approval", "lock"])
def test_rule_that_yields_is_refused(registry: Registry, word: str) -> None:
    """The body of such a rule would never run. Only the keys of a resource may be yielded."""
    with pytest.raises(ConfigError, match=f"^tool 'get_order': {word} must return what it says, but it yields"):
        registered(registry, **{word: _yields})
    assert registered(registry, resource_keys=_yields).name == "get_order"


def test_approval_and_lock_functions_take_bound_arguments(registry: Registry) -> None:
    """They see the same object as ``resource_keys``, made from the JSON that is stored."""
    spec = registered(registry, approval=_many, lock=_one_order)
    assert callable(spec.approval)
    assert callable(spec.lock)
    assert spec.approval({"order_id": "a", "items": 4})
    assert not spec.approval({"order_id": "a", "items": 1})
    assert spec.lock({"order_id": "a"}) == "order:a"


# --- a schema of its own ----------------------------------------------------------------------------------------------


def test_add_tool_passes_arguments_exactly_as_given(registry: Registry) -> None:
    """There are no defaults and no coercion, ``1.0`` stays ``1.0``, and the function's changes stay its own."""

    def change(args: dict[str, Any], ctx: RunContext) -> object:
        args["seen"] = ctx.call_id
        return args

    assert registry.add_tool(change, name="raw", schema=SCHEMA, description="Raw.", effect=Effect.READ_ONLY) == "raw"
    spec = registry.tools["raw"]
    bound = spec.bind({"tags": ["x"], "n": 1.0})
    assert repr(bound.values) == "{'tags': ['x'], 'n': 1.0}"
    assert not bound.was_coerced
    assert spec.invoke(bound.values, CTX) == {"tags": ["x"], "n": 1.0, "seen": "0.0"}
    assert bound.values == {"tags": ["x"], "n": 1.0}
    assert spec.bind({"tags": []}).values == {"tags": []}
    assert spec.schema == SCHEMA


def test_add_tool_names_each_bad_argument(registry: Registry) -> None:
    """A missing, an extra (``ctx`` included) and a mistyped argument are told in a line each."""
    registry.add_tool(echo, name="raw", schema=SCHEMA, description="")
    with pytest.raises(ArgumentsInvalid) as invalid:
        registry.tools["raw"].bind({"n": "3", "ctx": {}, "x": 1})
    assert sorted(invalid.value.problems) == [
        "ctx: not an argument of this tool",
        'n: "3" is not of type "integer"',
        "tags: required, but missing",
        "x: not an argument of this tool",
    ]
    with pytest.raises(ArgumentsInvalid, match=r"^tags\[1\]: 2 is not of type"):
        registry.tools["raw"].bind({"tags": ["a", 2]})


def test_add_tool_tells_what_is_wrong_with_a_long_argument(registry: Registry) -> None:
    """Of the value only the beginning is shown, but all that the schema says of it."""
    pattern = f"^(?:{'|'.join(f'option {number}' for number in range(20))})$"
    schema = {"properties": {"n": {"type": "integer"}, "p": {"pattern": pattern}}}
    registry.add_tool(echo, name="raw", schema=schema, description="")
    with pytest.raises(ArgumentsInvalid) as invalid:
        registry.tools["raw"].bind({"n": "x" * 1_000, "p": "y"})
    assert sorted(invalid.value.problems) == [
        f'n: "{"x" * 79}… is not of type "integer"',
        f'p: "y" does not match "{pattern}"',
    ]


def test_add_tool_names_an_argument_that_begins_with_a_dot(registry: Registry) -> None:
    """Under any other name the model could not give it."""
    registry.add_tool(echo, name="raw", schema={"properties": {".x": {}}, "required": [".x"]}, description="")
    with pytest.raises(ArgumentsInvalid, match=r"^\.x: required, but missing$"):
        registry.tools["raw"].bind({})


def test_add_tool_names_each_argument_of_a_tool_that_takes_none(registry: Registry) -> None:
    """Its schema, as MCP recommends it, has no ``properties``."""
    registry.add_tool(echo, name="raw", schema={"type": "object", "additionalProperties": False}, description="")
    assert registry.tools["raw"].bind({}).values == {}
    with pytest.raises(ArgumentsInvalid) as invalid:
        registry.tools["raw"].bind({"x": 1, "y": "secret"})
    assert invalid.value.problems == ("x: not an argument of this tool", "y: not an argument of this tool")


@pytest.mark.parametrize("value", [float("nan"), "\ud800"])
def test_add_tool_refuses_arguments_that_are_not_json(registry: Registry, value: object) -> None:
    """NaN is not null, and a lone surrogate is not text."""
    registry.add_tool(echo, name="raw", schema={"type": "object"}, description="")
    with pytest.raises(ArgumentsInvalid, match=r"^v: not JSON$"):
        registry.tools["raw"].bind({"v": value})


def test_add_tool_refuses_arguments_that_cannot_be_shown(registry: Registry) -> None:
    """A hook may rewrite arguments to a dict whose keys are no texts, which its schema refuses."""
    registry.add_tool(echo, name="raw", schema={"properties": {"sizes": {"type": "array"}}}, description="")
    with pytest.raises(ArgumentsInvalid, match=r"^arguments: Dict key must be str or str enum\. Got 'int'$"):
        registry.tools["raw"].bind({"sizes": {38: "small"}})


@pytest.mark.parametrize("argument", ["größe", "$filter", "bad key", "", "x" * 65])
def test_argument_that_claude_refuses_is_refused_of_its_agents(registry: Registry, argument: str) -> None:
    """Claude refuses each request that offers it, so every turn would fail. A script takes any name."""
    schema = {"type": "object", "properties": {"fine.a-b_1": {}, argument: {"type": "string"}}}
    registry.add_tool(echo, name="raw", schema=schema, description="")
    registry.agent("played", model="scripted:s.jsonl", tools=["raw"])
    with pytest.raises(
        ConfigError, match=f"^agent 'a': argument {re.escape(repr(argument))} of its tool 'raw': Claude"
    ):
        registry.agent("a", model="claude-sonnet-5-5", tools=["raw"])


def test_schema_that_claude_refuses_is_refused_of_its_agents(registry: Registry) -> None:
    """A schema of an older draft is told in the newest.

    One that cannot be would fail every turn; a script takes any.
    """
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
    pair = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}
    registry.add_tool(echo, name="pair", schema={**draft_7, "properties": {"p": pair}}, description="")
    registry.add_tool(echo, name="raw", schema={**draft_7, "properties": {"p": {"$id": "#p"}}}, description="")
    registry.agent("played", model="scripted:s.jsonl", tools=["pair", "raw"])
    registry.agent("claude", model="claude-sonnet-5-5", tools=["pair"])
    refused = r"^agent 'a': the schema of its tool 'raw': properties\.p\.\$id: .*draft 2020-12; correct it"
    with pytest.raises(ConfigError, match=refused):
        registry.agent("a", model="claude-sonnet-5-5", tools=["pair", "raw"])


def test_add_tool_takes_a_schema_that_cannot_be_changed(registry: Registry) -> None:
    """The tool's own copy is made of dicts and lists, as the validator needs it."""
    frozen = MappingProxyType({"type": "object", "properties": MappingProxyType({"a": {"enum": ("x", "y")}})})
    registry.add_tool(echo, name="raw", schema=frozen, description="")
    assert registry.tools["raw"].schema == {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}}
    with pytest.raises(ArgumentsInvalid):
        registry.tools["raw"].bind({"a": "z"})


class Table:
    """Compares like a table of figures: item by item."""

    def __eq__(self, _other: object) -> Table:  # type: ignore[override]
        return self

    def __bool__(self) -> NoReturn:
        raise ValueError("the truth value of a table is ambiguous")

    __hash__ = None  # type: ignore[assignment]


def test_add_tool_leaves_parameters_with_values_of_their_own_alone(registry: Registry) -> None:
    """It does not matter what such a default answers when it is compared."""
    table = Table()

    def look_up(args: dict[str, Any], table: Table = table) -> object:
        return args, table

    registry.add_tool(look_up, name="raw", schema={}, description="")
    assert registry.tools["raw"].invoke({"a": 1}, CTX) == ({"a": 1}, table)


def test_add_tool_takes_other_arguments_where_its_schema_says_so(registry: Registry) -> None:
    """A schema that allows additional properties stays open."""
    registry.add_tool(echo, name="a", schema={**SCHEMA, "additionalProperties": True}, description="")
    registry.add_tool(echo, name="b", schema={"type": "object"}, description="")
    assert registry.tools["a"].bind({"tags": [], "x": 1}).values == {"tags": [], "x": 1}
    assert registry.tools["b"].bind({"x": 1}).values == {"x": 1}


def test_add_tool_takes_arguments_that_depend_on_others(registry: Registry) -> None:
    """Before draft 2019-09, ``dependencies`` may list properties too; if it only requires some, no others are taken."""
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"card": True}}
    address = {"properties": {"address": {"type": "string"}}, "required": ["address"]}
    registry.add_tool(echo, name="a", schema={**draft, "dependencies": {"card": address}}, description="")
    registry.add_tool(echo, name="b", schema={**draft, "dependencies": {"card": ["address"]}}, description="")
    assert registry.tools["a"].bind({"card": 1, "address": "x"}).values == {"card": 1, "address": "x"}
    with pytest.raises(ArgumentsInvalid, match=r"^address: required, but missing$"):
        registry.tools["a"].bind({"card": 1})
    with pytest.raises(ArgumentsInvalid, match=r"^more: not an argument of this tool$"):
        registry.tools["b"].bind({"more": 1})


def test_raw_tool_may_take_its_context_by_name_or_place(registry: Registry) -> None:
    """The parameter ``ctx`` may stand after a star; a second one may have any name."""

    def whoami(_args: dict[str, Any], *, ctx: RunContext) -> str:
        return ctx.turn_id

    def second(_args: dict[str, Any], run: RunContext) -> str:
        return run.turn_id

    for fn in (whoami, second):
        name = registry.add_tool(fn, name=fn.__name__, schema={"type": "object"}, description="")
        assert registry.tools[name].invoke({}, CTX) == "turn"


def _three(args: dict[str, Any], ctx: RunContext, more: int) -> None: ...


def _none() -> None: ...


async def _async(args: dict[str, Any]) -> None: ...


ENDLESS: dict[str, Any] = {"type": "object"}
ENDLESS["properties"] = {"a": ENDLESS}


@pytest.mark.parametrize(
    ("fn", "schema", "said"),
    [
        (echo, {"type": "array"}, "schema must say"),
        (echo, ENDLESS, "contains itself"),
        (echo, {"properties": {"a": {"default": float("nan")}}}, "nan is not JSON"),
        (echo, {"properties": {"a": {"enum": [float("inf")]}}}, "inf is not JSON"),
        (echo, {"properties": {"a": {"type": "nope"}}}, 'valid JSON Schema: properties.a.type: "nope" is not valid'),
        (echo, {"properties": {"a": {"enum": "x" * 500}}}, f'properties.a.enum: "{"x" * 79}… is not of type "array"'),
        (echo, {"properties": {"a": {"default": object()}}}, "valid JSON Schema: Unsupported type: 'object'"),
        (echo, {"properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}, "Retrieval is disabled"),
        (echo, [], "schema must be a JSON Schema object"),
        (_three, SCHEMA, "must take (args) or (args, ctx)"),
        (_none, SCHEMA, "must take (args) or (args, ctx)"),
        (_async, SCHEMA, "async functions are refused"),
        (max, SCHEMA, "Python cannot tell its parameters"),
    ],
)
def test_add_tool_refuses_what_cannot_work(
    registry: Registry, fn: Callable[..., object], schema: dict[str, Any], said: str
) -> None:
    """A bad schema or function ends at registration, naming the tool."""
    with pytest.raises(ConfigError, match=r"^tool 'raw': ") as refused:
        registry.add_tool(fn, name="raw", schema=schema, description="")
    assert said in str(refused.value)


# --- agents -----------------------------------------------------------------------------------------------------------


def test_agent_takes_functions_and_names(registry: Registry) -> None:
    """Tools are listed either way and keep their order."""
    registry.tool()(get_order)
    name = registry.add_tool(echo, name="raw", schema=SCHEMA, description="")
    registry.agent("a", model="scripted:x", system="s", tools=[name, get_order], budget={"max_steps": 3})
    agent = registry.agents["a"]
    assert [tool.name for tool in agent.tools] == ["raw", "get_order"]
    assert (agent.model, agent.system, agent.budget, agent.parallel) == ("scripted:x", "s", {"max_steps": 3}, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": get_order}, "tools must be a list, such as tools=["),
        ({"tools": "get_order"}, "tools must be a list"),
        ({"tools": None}, "tools must be a list"),
        ({"hooks": Hooks}, "hooks must be a list, such as hooks=["),
        ({"hooks": Hooks()}, "hooks must be a list"),
        ({"hooks": [Hooks]}, "hooks must be instances of a subclass"),
        ({"judges": "polite"}, "judges must be a list, such as judges=["),
        ({"tools": ["nope"]}, "unknown tool 'nope'; register it first; there are: get_order, two"),
        ({"tools": [echo]}, "unknown tool <function echo"),
        ({"tools": ["get_order", "get_order"]}, "tool 'get_order' is listed twice"),
        ({"tools": [get_order]}, "registered as get_order, two; list it by name"),
        ({"model": ""}, "model must be"),
        ({"model": "scripted:"}, "model must be a model's name or 'scripted:FILE', not 'scripted:'"),
        ({"model": "scripted: "}, "model must be"),
        ({"model": " "}, "model must be"),
        ({"model": "m\ud800"}, "model must be"),
        ({"system": None}, "system must be a string"),
        ({"vault": ""}, "vault must be a directory's path, not ''"),
        ({"vault": 7}, "vault must be a directory's path, not 7"),
        ({"parallel": 1}, "parallel must be"),
        ({"budget": {"max_stepz": 1}}, "budget has no limit 'max_stepz'; there are: max_steps"),
        ({"budget": {"max_steps": -1}}, "must be a whole number, zero or more, not -1"),
        ({"budget": {"max_steps": 1.5}}, "must be a whole number"),
        ({"budget": {"max_steps": True}}, "must be a whole number"),
        ({"budget": {"max_dollars": float("nan")}}, "must be a number"),
        ({"budget": [1]}, "budget must be a dict"),
        ({"budget": []}, "budget must be a dict of limits, not list"),
        ({"think": "hard"}, "think must be one of off, low, medium, high, not 'hard'"),
        ({"think": True}, "think must be one of"),
        ({"think": "low", "reflect_every": 0}, "reflect_every must be a whole number, one or more, not 0"),
        ({"reflect_every": 2}, "reflect_every needs think='low' or more"),
        ({"compact_at_tokens": 0}, "compact_at_tokens must be a whole number, one or more, or 'auto', not 0"),
        ({"compact_at_tokens": "soon"}, "or 'auto', not 'soon'"),
        ({"compact_at_tokens": True}, "compact_at_tokens must be"),
    ],
)
def test_bad_agents_are_refused(registry: Registry, options: dict[str, Any], said: str) -> None:
    """A bad agent names itself and the mend, and is not declared."""
    registry.tool()(get_order)
    registry.tool(name="two")(get_order)
    with pytest.raises(ConfigError, match=r"^agent 'a': ") as refused:
        registry.agent("a", **dict[str, Any]({"model": "m", "system": "s", "tools": []}, **options))
    assert said in str(refused.value)
    assert not registry.agents


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "its name must be a string of 1 to 255 printable characters"),
        ("a\x00b", "its name must be a string of 1 to 255 printable characters"),
        ("a\nb", "its name must be a string of 1 to 255 printable characters"),
        ("\x1b[2J", "its name must be a string of 1 to 255 printable characters"),
        (".", "its name may not be '.', which the path of a URL cannot hold"),
        ("..", "its name may not be '..', which the path of a URL cannot hold"),
    ],
)
def test_name_of_an_agent_that_cannot_be_told_or_found_is_refused(registry: Registry, name: str, problem: str) -> None:
    """Terminals show it, and the path of a URL holds it."""
    with pytest.raises(ConfigError, match=problem):
        registry.agent(name, model="m")


def test_texts_that_cannot_be_kept_are_replaced(registry: Registry) -> None:
    """U+0000 and lone surrogates become U+FFFD in whatever the model reads; the catalogue is kept in a database."""

    def take(value: Annotated[str, Field(description="a\x00")]) -> str:
        return value

    take.__doc__ = "Take \ud800."
    registry.tool(take)
    registry.tool(name="named", description="\x00")(take)
    registry.add_tool(echo, name="raw", schema={"properties": {"a": {"description": "b\x00"}}}, description="\ud800")
    agent = registry.agent("a", model="m", system="s \ud800 \x00", tools=["take", "named", "raw"])
    assert agent.system == "s \ufffd \ufffd"
    assert [tool.description for tool in agent.tools] == ["Take \ufffd.", "\ufffd", "\ufffd"]
    texts = json.dumps([dict(tool.schema) for tool in agent.tools], ensure_ascii=False)
    assert clean_text(texts) == texts
    assert "a\ufffd" in texts
    assert "b\ufffd" in texts


def test_agent_budgets_may_be_zero_null_and_fractional_where_that_makes_sense(registry: Registry) -> None:
    """Zero is allowed; null means the default; dollars and seconds may be fractions."""
    budget = {"max_tool_calls": 0, "max_tokens": None, "max_dollars": 0.5, "timeout_s": 1.5}
    registry.agent("a", model="m", system="s", tools=[], budget=budget)
    assert registry.agents["a"].budget == budget


def test_agent_neither_thinks_nor_compacts_unless_it_says_so(registry: Registry) -> None:
    """Both are off by default; ``auto`` means four fifths of what a model can read."""
    plain = registry.agent("plain", model="m")
    assert (plain.think, plain.reflect_every, plain.compact_at_tokens) == ("off", None, None)
    other = registry.agent("other", model="m", think="high", reflect_every=3, compact_at_tokens="auto")
    assert (other.think, other.reflect_every, other.compact_at_tokens) == ("high", 3, 160_000)


def test_an_agent_declared_twice_is_refused(registry: Registry) -> None:
    """A name belongs to one agent."""
    registry.agent("a", model="m", system="s", tools=[])
    with pytest.raises(ConfigError, match=r"agent 'a' is declared twice"):
        registry.agent("a", model="m", system="s", tools=[])


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("agent", {"name": ["a"], "model": "m"}, r"^agent \['a'\]: its name must be a string"),
        ("agent", {"name": "a", "model": "m", "judges": [["x"]]}, r"^agent 'a': unknown judge \['x'\]"),
        ("agent_tool", {"agent": ["x"]}, r"^agent_tool: unknown agent \['x'\]"),
        ("judge", {"name": ["x"], "fn": len}, r"^judge \['x'\]: a name is 1 to 64"),
    ],
)
def test_lists_are_no_names(registry: Registry, method: str, options: dict[str, Any], said: str) -> None:
    """A name that cannot be looked up is refused like one that nobody has."""
    with pytest.raises(ConfigError, match=said):
        getattr(registry, method)(**options)


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        (
            "agent",
            {"name": "a", "model": "m", "heat": 1},
            "agent('a'): got an unexpected keyword argument 'heat'; it takes: ",
        ),
        ("agent", {"name": "a"}, "agent('a'): missing a required argument: 'model'; it takes: name, model, system, "),
        ("agent", {"model": "m"}, "agent(…): missing a required argument: 'name'"),
        ("agent", {"name": "a", "modle": "m"}, "agent('a'): got an unexpected keyword argument 'modle'"),
        (
            "add_tool",
            {"fn": echo, "name": "raw"},
            "add_tool('raw'): missing a required argument: 'schema'; it takes: fn, name, schema, description, **",
        ),
        (
            "add_tool",
            {"fn": echo, "name": "raw", "schema": SCHEMA, "description": "", "timeout": 5},
            "tool 'raw': unknown option 'timeout'; there are: name, description, effect, ",
        ),
        ("agent_tool", {"agent": "b", "aproval": "always"}, "agent_tool('b'): got an unexpected keyword argument"),
        (
            "judge",
            {"name": "j", "scale": 5},
            "judge('j'): got an unexpected keyword argument 'scale'; it takes: name, fn, ",
        ),
    ],
)
def test_options_unknown_or_missing_are_refused(
    registry: Registry, method: str, options: dict[str, Any], said: str
) -> None:
    """The message names what is being declared and which options there are; nothing is declared."""
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}"):
        getattr(registry, method)(**options)
    assert not [*registry.agents, *registry.tools, *registry.judges]


def test_agent_given_too_much_by_place_is_refused(registry: Registry) -> None:
    """All options of an agent are given by keyword."""
    declare: Any = registry.agent
    with pytest.raises(ConfigError, match=r"^agent\('a'\): too many positional arguments; it takes: name, model"):
        declare("a", "m")


def test_function_is_registered_at_once_under_a_name_of_its_own(registry: Registry) -> None:
    """So a method of two objects, or a lambda, needs no decorator."""
    assert registry.tool(echo, name="g") is echo
    assert [*registry.tools] == ["g"]


def test_tool_given_an_effect_or_two_names_by_place_is_refused(registry: Registry) -> None:
    """An effect is a string, so it would be the tool's name, and the tool's effect unknown."""
    declare: Any = registry.tool
    with pytest.raises(ConfigError, match=r"its function or its name; write effect=Effect\.READ_ONLY$"):
        declare(Effect.READ_ONLY)
    with pytest.raises(ConfigError, match=r"^tool 'g': 'h' is not a function$"):
        declare("h", name="g")
    assert not registry.tools


@pytest.mark.parametrize("levels", [200, 600, 5_000])
def test_arguments_nested_too_deep_are_refused_by_either_kind_of_tool(registry: Registry, levels: int) -> None:
    """No nesting a model sends can exhaust a worker's stack, whatever Python's own limits are."""
    deep: list[Any] = []
    for _ in range(levels - 1):
        deep = [deep]

    def take(v: Any) -> None:  # noqa: ANN401 - takes anything
        del v

    registry.tool()(take)
    registry.add_tool(echo, name="raw", schema={"type": "object"}, description="")
    for spec in registry.tools.values():
        with pytest.raises(ArgumentsInvalid, match=r"^v: nests deeper than 200 levels$"):
            spec.bind({"v": deep})
        assert spec.bind({"v": [1, [2]]}).values == {"v": [1, [2]]}


def test_arguments_that_hold_themselves_are_refused_at_once(registry: Registry) -> None:
    """A hook may rewrite arguments to anything, and one that branches in circles has too many levels to walk."""
    registry.add_tool(echo, name="raw", schema={"type": "object"}, description="")
    round_trip: dict[str, Any] = {}
    round_trip.update(a=round_trip, b=[round_trip])
    with pytest.raises(ArgumentsInvalid, match=r"^v: not JSON$"):
        registry.tools["raw"].bind({"v": round_trip})


# --- agents as tools


def test_agent_tool_is_the_agent_under_its_own_name(registry: Registry) -> None:
    """It has one argument, the agent's description and budget, and is no function for tool workers to serve."""
    registry.agent("helper", model="m", description="Helps.", budget={"timeout_s": 20})
    lead = registry.agent("lead", model="m", tools=[registry.agent_tool("helper")])
    tool = lead.tools[0]
    assert (tool.name, tool.description, tool.effect, tool.approval) == ("helper", "Helps.", None, "never")
    assert tool.schema["required"] == ["input"]
    assert tool.bind({"input": "go"}).values == {"input": "go"}
    for wrong in ({}, {"input": ""}, {"input": 3}, {"input": "go", "more": 1}):
        with pytest.raises(ArgumentsInvalid):
            tool.bind(wrong)
    with pytest.raises(ConfigError, match=r"^an agent is asked by the harness, not called: go$"):
        tool.invoke({"input": "go"}, CTX)
    assert tool.delegation is not None
    assert (tool.delegation.agent, tool.delegation.budget.timeout_s, tool.delegation.budget.max_steps) == (
        "helper",
        20,
        6,
    )
    assert (tool.keys({}), registry.agent_tool("helper", parallel=False).keys({})) == ((), None)
    assert dict(registry.tools) == {}


def test_agent_tool_may_need_a_persons_word(registry: Registry) -> None:
    """A rule on what the agent is asked decides."""
    registry.agent("helper", model="m", description="Helps.")
    tool = registry.agent_tool(
        "helper", description="Other words.", approval=lambda a: "pay" in a.input, approval_timeout_s=60
    )
    assert [tool.needs_approval({"input": said}) for said in ("pay it", "look")] == [True, False]
    assert (tool.description, tool.approval_timeout_s) == ("Other words.", 60)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nobody", {}, "unknown agent 'nobody'; declare it first; there are: helper, silent, two words"),
        ("silent", {}, "say what it is good for, with description='…'"),
        ("helper", {"description": ""}, "say what it is good for"),
        ("two words", {}, "a tool's name is 1 to 64 of"),
        ("helper", {"approval": "often"}, "approval must be 'always', 'never' or a function of the arguments"),
        ("helper", {"approval_timeout_s": -1}, "agent_tool('helper'): approval_timeout_s must be None or"),
        ("helper", {"approval_timeout_s": 60}, "agent_tool('helper'): approval_timeout_s needs approval='always' or"),
        ("helper", {"approval": _later}, "agent_tool('helper'): approval: async functions are refused"),
        ("helper", {"approval": _of_nothing}, "agent_tool('helper'): approval must take one argument"),
        ("helper", {"parallel": 1}, "parallel must be True or False, not 1"),
    ],
)
def test_agent_tool_that_cannot_work_is_refused(
    registry: Registry, name: str, options: dict[str, Any], message: str
) -> None:
    """It is refused when it is declared, and the message says what to do."""
    registry.agent("helper", model="m", description="Helps.")
    registry.agent("silent", model="m")
    registry.agent("two words", model="m", description="Helps.")
    with pytest.raises(ConfigError, match=re.escape(message)):
        registry.agent_tool(name, **options)


def test_agent_listed_as_a_tool_is_told_how_to_be_one(registry: Registry) -> None:
    """Its name and its declaration are near at hand where a tool's name or function is listed."""
    helper: Any = registry.agent("helper", model="m", description="Helps.")
    for listed in ("helper", helper):
        with pytest.raises(ConfigError, match=r"'helper' is an agent; list registry\.agent_tool\('helper'\)$"):
            registry.agent("lead", model="m", tools=[listed])


def test_agents_ask_each_other_over_three_levels_at_most(registry: Registry) -> None:
    """No agent can ask itself, since each is declared before the agents that ask it."""
    asked: list[ToolSpec] = []
    for name in ("a", "b", "c"):
        registry.agent(name, model="m", description="Helps.", tools=asked)
        asked = [registry.agent_tool(name)]
    with pytest.raises(ConfigError, match="agent 'd': agents may ask each other over 3 levels"):
        registry.agent("d", model="m", tools=asked)
    with pytest.raises(ConfigError, match="agent 'e': tool 'c' is listed twice"):
        registry.agent("e", model="m", tools=[registry.agent_tool("a"), *asked, *asked])


def test_agent_of_another_registry_is_refused(registry: Registry) -> None:
    """Nobody here would serve that agent. Tools are listed by function or name, not by their description."""
    other = Registry()
    other.agent("helper", model="m", description="Helps.")
    with pytest.raises(ConfigError, match="'helper' is not of this registry"):
        registry.agent("lead", model="m", tools=[other.agent_tool("helper")])
    spec = registered(registry)
    with pytest.raises(ConfigError, match="name tools by their names here"):
        registry.agent("lead", model="m", tools=[spec])


def test_agents_description_is_a_text(registry: Registry) -> None:
    """Other models read it."""
    description: Any = 3
    with pytest.raises(ConfigError, match="agent 'a': description must be a string, not int"):
        registry.agent("a", model="m", description=description)
