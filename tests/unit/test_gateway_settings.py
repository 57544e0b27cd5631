"""The gateway's settings: what is wrong is refused at once, by name, and no password is shown."""

from __future__ import annotations

import re

import pytest

from api_gateway.artifacts import ArtifactFiles
from api_gateway.config import load_settings
from api_gateway.requests.turns import BudgetRequest
from harness_worker.errors import ConfigError


@pytest.mark.parametrize(
    ("overrides", "variable"),
    [
        ({"redis_url": "redis://h"}, "HARNESS_DATABASE_URL is not set"),
        ({"dev_keyless": "maybe"}, "HARNESS_DEV_KEYLESS='maybe': give 1 or 0"),
        ({"tenant_queue": str(10**20)}, f"HARNESS_TENANT_QUEUE='{10**20}': input should be less than or equal to 10"),
        ({"database_url": "sqlite:///x"}, "HARNESS_REDIS_URL is not set"),
        ({"database_url": "sqlite:///x", "redis_url": "unix:///s"}, "HARNESS_REDIS_URL='unix:///s': give"),
        ({"database_url": "sqlite:///x", "broker_url": "http://u:p@h"}, "HARNESS_BROKER_URL='http://u:***@h'"),
        ({"database_url": "sqlite:///x", "redis_url": "redis:/u:secret@h"}, "HARNESS_REDIS_URL='redis:/***@h'"),
        (
            {"database_url": "sqlite:///x", "redis_url": "redis://h:0?password=secret"},
            "HARNESS_REDIS_URL='redis://h:0?password=***'",
        ),
        ({"database_url": "sqlite:///x", "redis_url": "redis://h", "log_level": "LOUD"}, "HARNESS_LOG_LEVEL='LOUD'"),
    ],
)
def test_settings_that_are_wrong_name_their_variable(
    overrides: dict[str, str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person knows at once what to mend."""
    for name in ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "LOG_LEVEL"):
        monkeypatch.delenv(f"HARNESS_{name}", raising=False)
    with pytest.raises(ConfigError) as error:
        load_settings(**overrides)
    assert variable in str(error.value)
    assert "secret" not in str(error.value)


def test_white_space_around_a_setting_is_dropped() -> None:
    """What is read from a file ends in a newline."""
    urls = {"database_url": "postgresql://u:p@h/d\n", "redis_url": "redis://u:p@h/0\n"}
    settings = load_settings(**urls, dev_keyless=" 1\n", webhook_private="0\n")
    assert (settings.database_url, settings.redis_url) == ("postgresql://u:p@h/d", "redis://u:p@h/0")
    assert (settings.dev_keyless, settings.webhook_private) == (True, False)


def test_artifact_url_that_cannot_be_used_shows_no_password() -> None:
    """A gateway that cannot reach the store says which it was told."""
    with pytest.raises(ConfigError, match=r"HARNESS_ARTIFACT_URL='nosuch://bob:\*\*\*@host/dir'") as error:
        ArtifactFiles("nosuch://bob:secret@host/dir")
    assert "secret" not in str(error.value)


def test_weak_webhook_secret_is_refused_and_not_shown() -> None:
    """Nor is one that is good, wherever settings are shown."""
    secret, urls = "hidden", {"database_url": "sqlite:///x", "redis_url": "redis://h"}
    with pytest.raises(ConfigError, match=r"^HARNESS_WEBHOOK_SECRET=\*\*\*: give one secret") as refused:
        load_settings(**urls, webhook_secret=secret)
    assert "hidden" not in str(refused.value)
    assert "hidden" not in repr(load_settings(**urls, webhook_secret=secret * 4))


def test_tenant_budget_is_read_and_refused_with_words() -> None:
    """As JSON from the environment; what it does not know is named."""
    urls = {"database_url": "sqlite:///x", "redis_url": "redis://h"}
    assert load_settings(**urls).tenant_budget is None
    assert load_settings(**urls, tenant_budget='{"max_dollars": 0.5}').tenant_budget == BudgetRequest(max_dollars=0.5)
    known = "max_steps, max_tool_calls, max_reflections, max_tokens, max_dollars, timeout_s"
    for wrong, said in {
        "{": "='{': give a JSON object of limits",
        '{"max_dolars": 0.5}': f".max_dolars is unknown: there are {known}",
        '{"max_steps": -1}': ".max_steps=-1: input should be greater than or equal to 0",
        "7": "='7': give a JSON object of limits",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(f"HARNESS_TENANT_BUDGET{said}")):
            load_settings(**urls, tenant_budget=wrong)
