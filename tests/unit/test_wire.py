"""What crosses process borders keeps its shape, and anything else is refused."""

from __future__ import annotations

from time import thread_time
from typing import Any

import pytest

from harness_worker.errors import NewerWire, WireError
from harness_worker.urls import masked
from harness_worker.wire import ToolMessage

MESSAGE = ToolMessage(turn_id="t", call_id="0.1", attempt=2, read=True, tenant="default")


def test_tool_message_survives_the_wire() -> None:
    """A message is what was sent."""
    assert ToolMessage.from_kwargs(MESSAGE.to_kwargs()) == MESSAGE


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"more": 1}, "more"),
        ({"turn_id": None}, "turn_id"),
        ({"attempt": "2"}, "attempt"),
        ({"attempt": True}, "attempt"),
        ({"read": "yes"}, "read"),
        ({"call_id": 0.1}, "call_id"),
        ({"call_id": "01"}, "call_id"),
        ({"call_id": "0.1.2"}, "call_id"),
        ({"call_id": "0.-1"}, "call_id"),
        ({"call_id": "0.1\n"}, "call_id"),
        ({"call_id": "0." + "1" * 5_000}, "call_id"),
    ],
)
def test_tool_message_of_another_shape_is_refused(change: dict[str, Any], named: str) -> None:
    """Unknown fields and wrong types are a wire error that names them."""
    with pytest.raises(WireError, match=named):
        ToolMessage.from_kwargs({**MESSAGE.to_kwargs(), **change})


def test_tool_message_of_a_version_to_come_is_told_from_a_wrong_one() -> None:
    """Whatever fields it has: it is for a newer worker, and nothing about it is wrong."""
    with pytest.raises(NewerWire, match="version 2; this worker reads 1"):
        ToolMessage.from_kwargs({"v": 2, "ticket": "…"})


def test_tool_message_without_a_field_is_refused() -> None:
    """A missing field is a wire error that names it."""
    kwargs = MESSAGE.to_kwargs()
    del kwargs["tenant"]
    with pytest.raises(WireError, match="tenant"):
        ToolMessage.from_kwargs(kwargs)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:s3cret@host:1/0", "redis://:***@host:1/0"),
        ("postgresql://me:s3cret@host/x?sslmode=require", "postgresql://me:***@host/x?sslmode=require"),
        ("postgresql://h/d?user=bob&password=s3cr#t&a=b", "postgresql://h/d?user=bob&password=***&a=b"),
        ("redis://h:0/0?password=s3cr@t", "redis://h:0/0?password=***"),
        (
            "s3://bucket/dir?aws_Secret=x&AuthToken=y&sslkey=z&c=1",
            "s3://bucket/dir?aws_Secret=***&AuthToken=***&sslkey=***&c=1",
        ),
        ("amqp://a:s3cret@h;amqp://b:s3cret@i", "amqp://a:***@h;amqp://b:***@i"),
        ("http://bob:s@3:cret@h/v", "http://bob:***@h/v"),
        ("redis:/bob:s3cret@h", "redis:/***@h"),
        ("bob:s3cret@h", "bob:***@h"),
        (":s3cret@h", "***@h"),
        ("ampq://bob:s3/cret@h/v", "ampq://***@h/v"),
        ("ampq://bob:s@3/cr?e#t@h/v", "ampq://***@h/v"),
        ("http://[::1:s3cret@h", "http://[:***@h"),
    ],
)
def test_masked_hides_what_is_secret(url: str, shown: str) -> None:
    """The password, in whatever place and however it is written; where it cannot be told from the rest, more."""
    assert masked(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        *("redis://host:1/0", "http://bob@host", "sqlite:////tmp/home/harness.db", "nonsense", ""),
        *("file:///home/me@corp/artifacts", "s3://bucket/me@corp", "redis://[::1]:7/0?timeout=1"),
    ],
)
def test_masked_leaves_other_urls_as_they_are(url: str) -> None:
    """A person sees what was given."""
    assert masked(url) == url


@pytest.mark.parametrize("text", ["/" * 50_000, "?" * 10_000, "?token" * 2_000], ids=["slashes", "marks", "names"])
def test_masked_takes_no_longer_for_some_characters_than_for_others(text: str) -> None:
    """A setting of any kind is shown at once."""
    began = thread_time()
    assert masked(text) == text
    assert thread_time() - began < 2
