"""Flower's page of tasks in a real browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest

from harness_worker.client.client import GatewayClient
from harness_worker.demo.conversations import CONVERSATIONS, Conversation
from tests.browser import look
from tests.integration.flower_kit import SHOP, await_listening, tasks_of
from tests.stacks import harness_up

IMAGES_VARIABLE: Final = "HARNESS_TEST_IMAGES"
"""A directory that keeps the picture; the page on Flower shows the one in ``docs/images``."""

SETTLE_MS: Final = 8_000

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]


def _body(asked: Conversation) -> dict[str, Any]:
    return {"agent": "support", "input": asked.question, "metadata": {"script": asked.script}}


def test_flower_page_shows_each_turn_and_call(tmp_path: Path) -> None:
    """Someone who opens the address that the stack gives sees each task with its turn, call and attempt."""
    picture = Path(os.environ.get(IMAGES_VARIABLE, tmp_path)).absolute() / "flower.png"
    with (
        harness_up(tmp_path / "home", "--app", SHOP, "--flower", "--flower-port", "0") as up,
        GatewayClient(up.info().gateway_url) as client,
    ):
        await_listening(up.info())
        turns = [client.create_turn(**_body(asked), wait_s=30) for asked in CONVERSATIONS]
        turn = turns[-1]
        tasks_of(up.info(), turn)
        url = f"{up.info().flower_url}/tasks"
        page = look(url, tmp_path / "profile", picture=picture, width=1520, height=760, settle_ms=SETTLE_MS)
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    assert picture.stat().st_size > 20_000
    assert f"turn {turn['id']}" in page
    assert f"call {turn['calls'][-1]['call_id']}, attempt 1" in page
    assert f"tool.{turn['calls'][-1]['tool']}" in page
