"""The demonstration's shop: its tools on real SQLite, and a recording that fits them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness_worker import Effect, RunContext, ToolError
from harness_worker.demo import shop
from harness_worker.demo.conversations import CONVERSATIONS
from harness_worker.demo.database import reset, shop_file
from harness_worker.demo.models import SCRIPT
from harness_worker.demo.shop import registry


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shop of the test's own."""
    monkeypatch.setenv("HARNESS_HOME", str(tmp_path))
    return tmp_path


def _context(key: str) -> RunContext:
    return RunContext.for_tests(call_id=key, idempotency_key=key)


def _rows(query: str) -> list[Any]:
    with closing(sqlite3.connect(shop_file())) as db:
        return db.execute(query).fetchall()


def _recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in SCRIPT.read_text().splitlines()]


def test_shop_has_reads_and_writes_that_say_so() -> None:
    """At least eight tools; every write deduplicates by its key, and so may be run again after a crash."""
    tools = registry.tools.values()
    writes = [tool for tool in tools if tool.effect is not Effect.READ_ONLY]
    assert len(tools) >= 8
    assert len(writes) >= 4
    assert all(tool.retry_safe and tool.effect is not None for tool in writes)


def test_shop_write_happens_once_a_key() -> None:
    """The same key again returns the same result and changes nothing; another key is another refund."""
    first = shop.refund("1042", 500, "late", _context("k1"))
    assert shop.refund("1042", 500, "late", _context("k1")) == first
    assert len(_rows("SELECT * FROM refunds")) == 1
    shop.refund("1042", 500, "late", _context("k2"))
    assert len(_rows("SELECT * FROM refunds")) == 2


def test_shop_failed_write_changes_nothing() -> None:
    """A write that fails leaves neither a change nor a used key."""
    with pytest.raises(ToolError, match="can be refunded up to 9800 cents"):
        shop.refund("1042", 99_999, "greed", _context("k1"))
    assert _rows("SELECT * FROM effects") == []
    assert shop.refund("1042", 9_800, "broken", _context("k1"))["amount_cents"] == 9_800


def test_shop_expired_voucher_says_what_to_do() -> None:
    """The failing tool's message is one that a person would understand."""
    with pytest.raises(ToolError, match="Voucher SPRING24 expired on 2024-05-31; use one that list_vouchers shows"):
        shop.apply_voucher("1055", "SPRING24", _context("k1"))


def test_shop_total_follows_voucher_and_wrapping() -> None:
    """The price is the goods, less the voucher's share, plus the wrapping: what the recording tells the customer."""
    shop.add_gift_wrap("1055", _context("k1"))
    shop.apply_voucher("1055", "THANKS10", _context("k2"))
    assert shop.get_order("1055")["total_cents"] == 7_600


def test_shop_address_is_fixed_once_shipped() -> None:
    """A parcel on its way keeps its address."""
    assert shop.change_address("1042", "12 Harbour Street", _context("k1"))["address"] == "12 Harbour Street"
    with pytest.raises(ToolError, match="is shipped; its address can no longer be changed"):
        shop.change_address("1060", "12 Harbour Street", _context("k2"))


def test_shop_reset_is_the_first_day_again() -> None:
    """Each demonstration starts from the same goods and orders, and may use the same keys."""
    shop.change_address("1042", "elsewhere", _context("k1"))
    reset(shop_file())
    assert shop.get_order("1042")["address"] == "3 Mill Lane, 7010 Trondheim"
    assert _rows("SELECT * FROM effects") == []


def test_recording_fits_the_tools() -> None:
    """Every recorded call names a tool of the agent, with arguments that fit its schema."""
    agent = registry.agents["support"]
    for line in _recorded():
        for block in line["content"]:
            if block["type"] == "tool_use":
                tool = agent.tool(block["name"])
                assert tool is not None
                tool.bind(block["input"])


def test_recording_has_every_conversation_and_its_usage() -> None:
    """Each question has a recording that starts at 0, counts up, and ends with text; usage is Anthropic's."""
    for script in ("default", *(each.script for each in CONVERSATIONS)):
        lines = [line for line in _recorded() if line["script"] == script]
        assert [line["step"] for line in lines] == list(range(len(lines)))
        assert [line["stop_reason"] for line in lines] == ["tool_use"] * (len(lines) - 1) + ["end_turn"]
        usage = {"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"}
        assert all(line["usage"].keys() == usage for line in lines)


def test_recording_is_found_from_any_directory() -> None:
    """The agent's model names the recording by an absolute path that exists."""
    model = registry.agents["support"].model
    assert model == f"scripted:{SCRIPT}"
    assert SCRIPT.is_absolute()
    assert SCRIPT.is_file()
