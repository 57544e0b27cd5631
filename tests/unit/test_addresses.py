"""Where a stack's parts are, as other commands are told to find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_worker.config import Settings
from harness_worker.entrypoints.addresses import Addresses


@pytest.mark.parametrize(
    ("given", "options", "home_option"),
    [
        ({}, "", ""),
        ({"home": Path("my home")}, " --home 'my home'", " --home 'my home'"),
        ({"gateway_url": "http://h:1"}, " --url http://h:1", ""),
        ({"gateway_url": "http://u:secret@h:1", "home": Path("x")}, " --url 'http://u:***@h:1'", " --home x"),
    ],
)
def test_commands_that_are_told_find_the_same_stack(
    given: dict[str, str | Path], options: str, home_option: str
) -> None:
    """They get the options that name it, quoted and without secrets, unless it is found without any."""
    addresses = Addresses(Settings.model_validate(given))
    assert (addresses.options, addresses.home_option) == (options, home_option)
