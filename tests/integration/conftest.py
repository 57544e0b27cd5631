"""The fixture that most tests of the gateway use."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.integration.gateway_kit import Gateway, gateway_on, own_db


@pytest.fixture
def gateway(database_url: str, valkey_url: str) -> Generator[Gateway]:
    """A gateway with live events, once on each kind of database."""
    with gateway_on(database_url, own_db(valkey_url), own_db(valkey_url)) as running:
        yield running
