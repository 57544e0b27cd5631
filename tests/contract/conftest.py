"""A client of Valkey, and one of the provider's stub."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness_worker.adapters.anthropic.client import AnthropicModel
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.testing.messages_stub import MessagesStub
from tests.contract.anthropic_kit import KEY


@pytest.fixture(scope="session")
def client(valkey_url: str) -> Iterator[RedisClient]:
    """A client of the session's Valkey."""
    client = RedisClient(valkey_url)
    yield client
    client.disconnect()


@pytest.fixture
def model(stub: MessagesStub) -> AnthropicModel:
    """Claude behind the model port, of which the stub tells what it says."""
    return AnthropicModel(KEY, stub.url)
