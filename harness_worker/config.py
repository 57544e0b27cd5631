"""The worker's settings, read once from ``HARNESS_*`` environment variables. Only this module reads them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from harness_worker.validation import complaint
from harness_worker.variables import (
    PREFIX,
    ErrorDetails,
    Flag,
    HttpUrl,
    SharedSettings,
    loaded,
    refusal,
)
from harness_worker.wire import MAX_APPROVAL_S

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


def _header_value(key: SecretStr | None) -> SecretStr | None:
    """``key``, if a header can hold it; otherwise raises :class:`ValueError`."""
    if key and not re.fullmatch("[!-~]+", key.get_secret_value()):
        raise ValueError("must be visible characters of ASCII, without white space between them")
    return key


class Settings(SharedSettings):
    """Every setting of the worker package; a field ``x`` is the variable ``HARNESS_X``. Times are in seconds.

    Variables that Anthropic's and OpenTelemetry's own tools read keep their names: ``ANTHROPIC_API_KEY``,
    ``ANTHROPIC_BASE_URL``, ``OTEL_…``.
    The protocol's times (``lease_ttl_s`` … ``late_grace_s``) are explained in docs/reference/settings.md.
    """

    model_config = SettingsConfigDict(populate_by_name=True)

    app: str | None = Field(default=None, description="module:registry, the agents and tools to serve")
    home: Path = Field(default=Path(".harness"), description="where `harness up` keeps its data")
    database_url: str | None = Field(default=None, description="sqlite:///FILE or postgresql://…")
    gateway_url: str | None = Field(default=None, description="a running gateway, for commands that ask one")
    api_key: Annotated[SecretStr | None, AfterValidator(_header_value)] = Field(
        default=None, description="the key of that gateway, for commands that ask it"
    )
    vault: str | None = Field(
        default=None, description="a directory of documents, for every agent that names none of its own"
    )
    retriever: Literal["bm25", "semantic"] = Field(
        default="bm25", description="finds memories and documents by words in common, or by meaning"
    )
    flower_auth: SecretStr | None = Field(default=None, description="user:password that Flower asks for")
    anthropic_api_key: SecretStr | None = Field(
        default=None, validation_alias="ANTHROPIC_API_KEY", description="the key for agents whose model is Claude"
    )
    anthropic_base_url: HttpUrl | None = Field(
        default=None, validation_alias="ANTHROPIC_BASE_URL", description="where the Messages API is, if elsewhere"
    )
    otlp_endpoint: HttpUrl | None = Field(
        default=None, validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT", description="where traces go: <this>/v1/traces"
    )
    otlp_traces_endpoint: HttpUrl | None = Field(
        default=None, validation_alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", description="where traces go, as it is"
    )
    otel_disabled: Flag = Field(
        default=False, validation_alias="OTEL_SDK_DISABLED", description="no traces, whatever else is set"
    )
    trace_content: Flag = Field(default=False, description="whether traces tell what was said")

    grace_s: Seconds = 20.0
    lease_ttl_s: Seconds = 6.0
    heartbeat_s: Seconds = 2.0
    look_s: Seconds = 2.0
    reconcile_s: Seconds = 1.0
    hard_limit_slack_s: Seconds = 1.5
    late_grace_s: Seconds = 2.0
    model_timeout_s: Seconds = 600.0
    context_timeout_s: Seconds = 5.0
    approval_timeout_s: Annotated[float, Field(gt=0, le=MAX_APPROVAL_S, allow_inf_nan=False)] = 86_400.0
    attempt_cap: Annotated[int, Field(ge=1, le=100)] = 3
    tenant_turns: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="how many turns of one tenant may run at a time; its others wait"
    )
    max_tool_timeout_s: Seconds = 45.0
    visibility_timeout_s: Seconds = 120.0
    artifact_threshold_chars: Annotated[int, Field(ge=200)] = 12_000
    artifact_ttl_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3_600.0
    faults: Path | None = Field(
        default=None, description="for drills and tests only: the directory of a plan of faults to inject"
    )

    @property
    def gateway_key(self) -> str | None:
        """The gateway's API key as plain text, to be sent."""
        return self.api_key.get_secret_value() if self.api_key else None

    @property
    def traces_url(self) -> str | None:
        """The URL that traces are posted to; ``None``: tracing is off."""
        if self.otel_disabled:
            return None
        if self.otlp_traces_endpoint is not None or self.otlp_endpoint is None:
            return self.otlp_traces_endpoint
        return f"{self.otlp_endpoint.rstrip('/')}/v1/traces"

    @model_validator(mode="after")
    def _has_a_root(self) -> Self:
        if re.search("[?#]", self.otlp_endpoint or ""):  # checked here, since a field's error would show the value
            name, whole = variable_of("otlp_endpoint"), variable_of("otlp_traces_endpoint")
            advice = f"put a key into OTEL_EXPORTER_OTLP_HEADERS, or the whole URL into {whole}"
            msg = f"{name}: must have neither ? nor #, for /v1/traces is added to it; {advice}"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _beats_in_time(self) -> Self:
        most = self.lease_ttl_s / 2
        if self.heartbeat_s > most:
            beat, lease = (f"{variable_of(name)}={getattr(self, name):g}" for name in ("heartbeat_s", "lease_ttl_s"))
            msg = f"{beat}: must be at most {most:g}, half of {lease}, or calls that run well are taken for lost"
            raise ValueError(msg)
        return self


def load_settings(**overrides: Any) -> Settings:  # noqa: ANN401 - any field's value
    """The settings of this process.

    Args:
        **overrides: Values that win over the environment, by field name; ``None`` is ignored.

    Raises:
        ConfigError: A value is not allowed; the message names its variable and says what is allowed.
    """
    return loaded(Settings, overrides, _complaint)


def environment() -> dict[str, str]:
    """A copy of this process's environment, to start children with."""
    return dict(os.environ)  # noqa: TID251 - this is the config module


def variable_of(field: str) -> str:
    """The environment variable of a field, given by its name or by its variable."""
    names = {name: info.validation_alias or PREFIX + name.upper() for name, info in Settings.model_fields.items()}
    return str(names.get(field, field if field in names.values() else PREFIX + field.upper()))


def _complaint(error: ErrorDetails) -> str:
    if not error["loc"]:  # about several settings, which the message names
        return complaint(error)
    variable = variable_of(str(error["loc"][0]))
    return refusal(variable, error, is_secret=variable in _secrets())


def _secrets() -> set[str]:
    """The variables that hold secrets."""
    return {variable_of(name) for name, info in Settings.model_fields.items() if SecretStr in get_args(info.annotation)}
