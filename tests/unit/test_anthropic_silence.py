"""How long a stream of the provider's may be silent."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from harness_worker.adapters.anthropic.silence import FIRST_BYTE_S, PAUSE_S, Silence
from harness_worker.errors import TransientError


class Stream:
    """A reply whose bytes come when the test says so, at the time that it says."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.silence = Silence(lambda: self.now_s)
        self._response = httpx2.Response(200, content=iter([b"x"] * 10))
        self._bytes: Iterator[bytes] = self._response.iter_raw()

    def begin(self) -> None:
        """The headers come."""
        self.silence.response = self._response

    def come(self) -> None:
        """A byte comes."""
        next(self._bytes)

    def wait(self, seconds: float) -> None:
        """Time passes; then somebody looks."""
        self.now_s += seconds
        self.silence.check()


@pytest.fixture
def stream() -> Stream:
    """One that has not begun."""
    return Stream()


@pytest.mark.parametrize("headers", [False, True])
def test_reply_may_be_long_in_beginning(stream: Stream, *, headers: bool) -> None:
    """A long prompt is read first; headers say nothing of it."""
    stream.wait(FIRST_BYTE_S / 2)
    if headers:
        stream.begin()
    stream.wait(FIRST_BYTE_S / 2 - 1)
    with pytest.raises(TransientError, match=r"sent nothing for 300 s$"):
        stream.wait(1)


def test_reply_that_goes_on_may_take_any_time(stream: Stream) -> None:
    """Whatever comes, be it pings; the whole call has a time of its own."""
    stream.begin()
    for _ in range(10):
        stream.come()
        stream.wait(0.1)
        stream.wait(PAUSE_S - 1)


def test_reply_that_has_begun_may_not_pause_for_long(stream: Stream) -> None:
    """It has stalled: to ask again helps, to wait does not."""
    stream.begin()
    stream.wait(PAUSE_S * 2)
    stream.come()
    stream.wait(PAUSE_S * 2)  # the byte came at some time since the last look
    stream.wait(PAUSE_S - 1)
    with pytest.raises(TransientError, match=r"sent nothing for 60 s$"):
        stream.wait(1)
