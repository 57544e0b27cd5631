"""The names by which a cell is asked once: equal for the same cell, different for any other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness_worker.evaluation.cells import Cell, cells_of
from tests.unit.eval_kit import case, cell

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=5)


def _cell(sweep: str, agent: str, repeat: int, asked: tuple[str, list[str], str, int]) -> Cell:
    case_id, inputs, value, steps = asked
    found = case(id=case_id, input=inputs, metadata={"k": value}, budget={"max_steps": steps})
    return Cell(sweep=sweep, agent=agent, repeat=repeat, case=found)


ASKED = st.tuples(TEXT, st.lists(TEXT, min_size=1, max_size=3), TEXT, st.integers(0, 3))
CELLS = st.builds(_cell, TEXT, TEXT, st.integers(1, 20), ASKED)


@given(CELLS, CELLS)
def test_cells_share_a_name_only_if_they_ask_the_same(one: Cell, other: Cell) -> None:
    """Session and keys follow from all that is asked, and are of a size and of characters that a header takes."""
    assert (one.asked == other.asked) is (one == other)
    keys = [each.key(number) for each in {one.asked: one, other.asked: other}.values() for number in range(3)]
    assert len(set(keys)) == len(keys)
    assert all(key.isascii() and len(key) < 100 for key in (*keys, one.session_id))
    assert (one.session_id == other.session_id) is (one == other)


def test_what_is_expected_has_a_name_of_its_own() -> None:
    """An expectation that was edited is held against the turn there is; nothing is asked for it."""
    plain, edited = cell(expect={"equals": "a"}), cell(expect={"equals": "b"})
    assert plain.asked == edited.asked
    assert plain.expected(None) == cell(expect={"equals": "a"}).expected(None)
    names = {plain.expected(None), edited.expected(None), plain.expected("m:f"), cell(target=1).expected(None)}
    assert len(names) == 4


def test_body_names_the_cell() -> None:
    """The turns of a sweep are found by their metadata, wait behind those of people, and share a session."""
    asked = cell(repeat=3, input=["one", "two"], metadata={"script": "x"}, budget={"max_steps": 2})
    assert asked.body(1) == {
        "agent": "clerk",
        "input": "two",
        "session_id": asked.session_id,
        "metadata": {"script": "x", "sweep": "s", "case": "c", "repeat": "3"},
        "budget": {"max_steps": 2},
        "priority": "batch",
    }


def test_cells_are_every_case_of_every_agent() -> None:
    """All cases once before any is asked again, so that a sweep that is cut short has seen most of them."""
    cells = list(cells_of("s", ["a", "b"], [case(id="x"), case(id="y")], 2))
    assert [(each.repeat, each.case.id, each.agent) for each in cells] == [
        (repeat, case_id, agent) for repeat in (1, 2) for case_id in "xy" for agent in "ab"
    ]
