"""Reading somebody's cases: what is taken, and how all that is wrong is told at once."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_worker.errors import ConfigError
from harness_worker.evaluation.cases import MOST_TOLD, read_cases

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
FIELDS = ("id", "input", "metadata", "budget", "expect", "target")


def refusal(*lines: object) -> list[str]:
    """What is said of a file of these lines, without the first, which names the file."""
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    with pytest.raises(ConfigError) as refused:
        read_cases("cases.jsonl", text.encode("utf-8", "surrogateescape"))
    first, *problems = str(refused.value).split("\n  ")
    assert first.startswith("cases.jsonl")
    return problems


def test_cases_have_short_forms() -> None:
    """One text stands for a list of one, a tool's name for a call of it; null counts as absent."""
    expect = {"contains": "Friday", "calls": ["find", {"tool": "put", "arguments": {"n": 1}}], "no_calls": "send"}
    (found,) = read_cases("c", json.dumps({"input": "hi", "id": None, "expect": {**expect, "equals": None}}).encode())
    assert (found.id, found.input, found.expect.contains, found.expect.no_calls) == (
        "1",
        ("hi",),
        ("Friday",),
        ("send",),
    )
    assert [(wanted.tool, wanted.arguments) for wanted in found.expect.calls] == [("find", {}), ("put", {"n": 1})]


def test_cases_are_numbered_by_their_lines() -> None:
    """A case without an id is called by its line; empty lines and a byte order mark are no lines of anybody."""
    found = read_cases("c", b'\xef\xbb\xbf{"input": "a"}\n\n \r\n{"input": ["b", "c"], "id": "x"}\r\n{"input": "d"}')
    assert [(case.id, case.input) for case in found] == [("1", ("a",)), ("x", ("b", "c")), ("5", ("d",))]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"input": nope}', "not JSON: expected ident at column 12"),
        ("[1]", "a case is an object"),
        ('{"input": "a", "target": 1e999}', "a number is too large: give one below 1e308"),
        ('{"input": "a", "expect": {"calls": {"tool": "t", "arguments": {"n": [-1e999]}}}}', "a number is too large"),
        ('{"input": "a", "target": NaN}', "not JSON"),
        ('{"input": "\\ud800"}', "not JSON"),
        ('{"input": "\udcff"}', "not UTF-8: byte 12"),
        ({}, "input: required, but missing"),
        ({"input": 1}, "input: must be a text, or a list of texts"),
        ({"input": []}, "input: must be a text, or a list of texts"),
        ({"input": "a\0"}, "input.0: must not contain the character U+0000"),
        ({"input": ["a"] * 101}, "input: value should have at most 100 items"),
        ({"input": "a", "id": 3}, "id: input should be a valid string"),
        ({"input": "a", "id": ""}, "id: string should have at least 1 character"),
        ({"input": "a", "expects": {}}, f"expects: unknown field; there are: {', '.join(FIELDS)}"),
        ({"input": "a", "expect": {"equal": "b"}}, "expect.equal: unknown field; there are: equals, contains"),
        (
            {"input": "a", "expect": {"calls": [{"tool": "x", "name": "y"}]}},
            "expect.calls.0.name: unknown field; there are: tool",
        ),
        ({"input": "a", "expect": {"matches": "("}}, "expect.matches: not a regular expression: missing )"),
        (
            {"input": "a", "expect": {"matches": "a{4294967296}"}},
            "expect.matches: not a regular expression: the repetition number is too large",
        ),
        (
            {"input": "a", "expect": {"matches": "(" * 5_000}},
            "expect.matches: not a regular expression: maximum recursion depth exceeded",
        ),
        ({"input": "a", "expect": {"stop_reason": "bored"}}, "expect.stop_reason: input should be 'end_turn'"),
        ({"input": "a", "expect": {"scores": {"j": "1"}}}, "expect.scores.j: input should be a valid number"),
        ({"input": "a", "expect": {"scores": {"j": 2}}}, "expect.scores.j: input should be less than or equal to 1"),
        ({"input": "a", "budget": {"steps": 1}}, "budget: budget has no limit 'steps'; there are: max_steps"),
        ({"input": "a", "budget": {"max_steps": -1}}, "budget: budget['max_steps'] must be a whole number"),
        ({"input": "a", "budget": {"max_dollars": 10**400}}, "budget: budget['max_dollars'] is too large a number"),
        ({"input": "a", "budget": {"timeout_s": 10**309}}, "budget: budget['timeout_s'] is too large a number"),
        ({"input": "a", "metadata": {"sweep": "x"}}, "metadata: sweep: these keys name the cell"),
        ({"input": "a", "metadata": {"n": 1}}, "metadata.n: input should be a valid string"),
        ({"input": "a", "metadata": {"n": "x" * 513}}, "metadata.n: string should have at most 512 characters"),
        ({"input": "a", "metadata": {str(n): "" for n in range(14)}}, "metadata: object should have at most 13"),
        ({"input": "a", "expect": []}, "expect: input should be an object"),
        ({"input": "a", "expect": {"calls": 1}}, "expect.calls: input should be a list"),
    ],
)
def test_wrong_line_is_told(line: object, told: str) -> None:
    """By its number and place, with what is right; the lines around it are not."""
    (problem,) = refusal({"input": "before"}, line, {"input": "after"})
    assert problem.startswith(f"line 2: {told}")


def test_all_wrong_lines_are_told_at_once() -> None:
    """Each wrong thing of each line, and an id that was there before; of very many, how many more there are."""
    told = refusal({"id": "a", "input": "x"}, {"inputs": 1}, {"id": "a", "input": "y"}, "{")
    assert [problem.partition(":")[0] for problem in told] == ["line 2", "line 2", "line 3", "line 4"]
    assert told[2] == "line 3: id 'a' is that of line 1 already; give it one of its own"
    assert refusal(*["{}"] * (MOST_TOLD + 5))[-1] == "and 5 more"


@pytest.mark.parametrize("data", [b"", b"\n \n"])
def test_file_without_cases_is_refused(data: bytes) -> None:
    """Nothing to ask is no success."""
    with pytest.raises(ConfigError, match="has no cases"):
        read_cases("cases.jsonl", data)


@given(st.binary())
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    """Whatever a file holds, it is cases or words."""
    try:
        read_cases("c", data)
    except ConfigError:
        return


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_json_raises_anything_else(line: dict[str, object]) -> None:
    """Whatever a line's members are, it is a case that can be sent, or words."""
    try:
        (found,) = read_cases("c", json.dumps(line).encode())
    except ConfigError:
        return
    json.dumps([found.id, *found.input, found.metadata, found.budget]).encode()
