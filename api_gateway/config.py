"""The gateway's settings, read once from ``HARNESS_*`` environment variables. Only this module reads them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from api_gateway.limits.rates import rates_in
from api_gateway.requests.turns import BudgetRequest
from harness_worker.errors import ConfigError
from harness_worker.variables import PREFIX, ErrorDetails, Flag, SharedSettings, loaded, refusal


def _parsed(value: object) -> object:
    """A text parsed as a JSON object; any other value unchanged."""
    if not isinstance(value, str):
        return value
    with suppress(ValueError):
        if isinstance(found := json.loads(value), dict):
            return cast("dict[str, Any]", found)
    raise ValueError('give a JSON object of limits, such as {"max_dollars": 0.5}')


def _checked_rates(text: str) -> str:
    """``text`` unchanged, if it is a list of rates."""
    rates_in(text)
    return text


class Settings(SharedSettings):
    """Every setting of the gateway package; a field ``x`` is the variable ``HARNESS_X``. Times are in seconds."""

    database_url: str = Field(description="sqlite:///FILE or postgresql://…; the same database as the workers'")
    dev_keyless: Flag = Field(default=False, description="serve this machine without API keys")
    body_idle_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    publish_timeout_s: Annotated[float, Field(gt=0, le=60)] = 2.0
    tenant_budget: Annotated[BudgetRequest | None, NoDecode, BeforeValidator(_parsed)] = Field(
        default=None, description="the most a turn of a tenant may have, whatever its agent's budget, as JSON"
    )
    tenant_queue: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = Field(
        default=None, description="how many turns of one tenant may be queued or running; further ones are refused"
    )
    tenant_rate: Annotated[str, AfterValidator(_checked_rates)] | None = Field(
        default=None, description="how often a tenant may post turns: 120/minute, or 10/second; 1000/day"
    )
    webhook_private: Flag = Field(default=False, description="let webhooks call addresses that are not public")
    tenant_dollars: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="what a tenant's turns of the last 24 hours may have used, in dollars"
    )
    sse_heartbeat_s: Annotated[float, Field(gt=0, le=60)] = 10.0

    @property
    def broker(self) -> str:
        """The broker's URL; ``load_settings`` has made sure that there is one."""
        return self.broker_url or self.redis_url or ""


def load_settings(**overrides: Any) -> Settings:  # noqa: ANN401 - any field's value
    """The settings of this process.

    Args:
        **overrides: Values that win over the environment, by field name; ``None`` is ignored.

    Raises:
        ConfigError: A value is missing or not allowed; the message names its variable and says what is allowed.
    """
    settings = loaded(Settings, overrides, _complaint)
    if not settings.broker:
        raise ConfigError("HARNESS_REDIS_URL is not set: give redis://HOST:PORT/DB (or HARNESS_BROKER_URL)")
    return settings


def _complaint(error: ErrorDetails) -> str:
    field, *inner = map(str, error["loc"])
    name = ".".join([PREFIX + field.upper(), *inner])
    if error["type"] == "missing":
        return f"{name} is not set: give {Settings.model_fields[field].description}"
    if error["type"] == "extra_forbidden" and inner:  # only a budget has inner names
        return f"{name} is unknown: there are {', '.join(BudgetRequest.model_fields)}"
    return refusal(name, error, is_secret=field == "webhook_secret")
