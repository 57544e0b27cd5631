"""Which calls may run together: only neighbours that only read, and read different things."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_worker.core.waves import Want, plan_waves

ALONE = Want(keys=None)
AGENT = Want(keys=frozenset(), is_delegated=True)


def reads(*keys: str) -> Want:
    """A read of these resources."""
    return Want(keys=frozenset(keys))


@pytest.mark.parametrize(
    ("wants", "waves"),
    [
        ([], ()),
        ([reads("a")], (0,)),
        ([reads("a"), reads("b")], (0, 0)),
        ([reads("a"), reads("a")], (0, 1)),
        ([reads("a", "b"), reads("c", "b")], (0, 1)),
        ([reads(), reads(), reads("a")], (0, 0, 0)),
        ([reads("a"), ALONE, reads("a")], (0, 1, 2)),
        ([ALONE, ALONE], (0, 1)),
        ([reads("a"), reads("b"), reads("a"), reads("b")], (0, 0, 1, 1)),
        ([reads("a"), reads("b"), reads("a"), reads("c")], (0, 0, 1, 1)),
        ([AGENT, AGENT, reads("a"), reads("b"), AGENT, ALONE, AGENT], (0, 0, 1, 1, 2, 3, 4)),
    ],
)
def test_waves_are_planned(wants: Sequence[Want], waves: tuple[int, ...]) -> None:
    """Disjoint neighbouring reads share a wave; a write or a shared resource starts a new one."""
    assert plan_waves(wants, parallel=True) == waves


def test_waves_without_parallel_are_one_call_each() -> None:
    """``parallel=False`` makes every call sequential."""
    assert plan_waves([reads("a"), reads("b"), ALONE], parallel=False) == (0, 1, 2)


_keys = st.frozensets(st.sampled_from("abcde"), max_size=3)
_wants = st.lists(st.builds(Want, keys=st.one_of(st.none(), _keys, _keys)), max_size=12)


@settings(max_examples=500)
@given(wants=_wants, parallel=st.booleans())
def test_waves_keep_order_and_never_conflict(wants: list[Want], parallel: bool) -> None:
    """Numbers never fall or skip; a sequential call is alone; no resource is read twice in a wave."""
    check(wants, parallel=parallel)


@pytest.mark.acceptance
@pytest.mark.timeout(3_600)
@settings(max_examples=20_000)
@given(wants=_wants, parallel=st.booleans())
def test_waves_keep_their_rules_in_thousands_of_plans(wants: list[Want], parallel: bool) -> None:
    """The same, for longer."""
    check(wants, parallel=parallel)


def check(wants: list[Want], *, parallel: bool) -> None:
    """The rules of a plan."""
    waves = plan_waves(wants, parallel=parallel)
    assert len(waves) == len(wants)
    assert all(after - before in (0, 1) for before, after in zip((-1, *waves), waves, strict=False))
    for _, members in groupby(zip(waves, wants, strict=True), key=lambda pair: pair[0]):
        together = [want.keys for _, want in members]
        if len(together) > 1:
            assert parallel
            known = [keys for keys in together if keys is not None]
            assert len(known) == len(together)
            assert sum(map(len, known)) == len({key for keys in known for key in keys})


@settings(max_examples=500)
@given(wants=_wants)
def test_waves_are_as_wide_as_may_be(wants: list[Want]) -> None:
    """A call that starts a wave could not have joined the one before it."""
    waves = plan_waves(wants, parallel=True)
    for index in range(1, len(wants)):
        if waves[index] == waves[index - 1]:
            continue
        before = [want.keys for want, wave in zip(wants, waves, strict=True) if wave == waves[index - 1]]
        keys = wants[index].keys
        assert keys is None or any(held is None or held & keys for held in before)
