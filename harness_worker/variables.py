"""Settings from environment variables: what ``config.py`` of both packages share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from harness_worker.credentials import webhook_secrets
from harness_worker.errors import ConfigError
from harness_worker.urls import BROKER_SCHEMES, HTTP_SCHEMES, REDIS_SCHEMES, masked, service_url, service_urls
from harness_worker.validation import complaint

PREFIX: Final = "HARNESS_"

S = TypeVar("S", bound=BaseSettings)
ErrorDetails: TypeAlias = Mapping[str, Any]
"""One error of pydantic: ``loc``, ``msg``, ``input`` and ``type``."""


def _usable(secret: SecretStr | None) -> SecretStr | None:
    """``secret``, if webhooks can be signed with it; otherwise raises :class:`ValueError`."""
    if secret is not None:
        webhook_secrets(secret.get_secret_value())
    return secret


def _stripped(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _upper(text: object) -> object:
    return text.strip().upper() if isinstance(text, str) else text


def _rooted(url: str) -> str:
    """``url``, if it names one place whatever the working directory; otherwise raises :class:`ValueError`."""
    path = url.removeprefix("file://").removeprefix("local://")
    is_remote = path == url and "://" in url
    has_bucket = not url.endswith("://") or url == "memory://"  # which needs none
    if not (has_bucket if is_remote else path.startswith(("/", "~"))):
        raise ValueError("give a URL such as file:///DIR or s3://BUCKET/DIR")
    return url


RedisUrl: TypeAlias = Annotated[str, AfterValidator(lambda url: service_url(url, REDIS_SCHEMES))]
HttpUrl: TypeAlias = Annotated[str, AfterValidator(lambda url: service_url(url, HTTP_SCHEMES))]
BrokerUrl: TypeAlias = Annotated[str, AfterValidator(lambda urls: service_urls(urls, BROKER_SCHEMES))]
ArtifactUrl: TypeAlias = Annotated[str, AfterValidator(_rooted)]
LogLevel: TypeAlias = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)]
Flag: TypeAlias = Annotated[bool, BeforeValidator(_stripped)]
WebhookSecret: TypeAlias = Annotated[SecretStr | None, AfterValidator(_usable)]


class SharedSettings(BaseSettings):
    """The settings that both packages have; a field ``x`` is the variable ``HARNESS_X``.

    White space around a value is dropped, because values from files, such as secrets, often end in a newline. A value
    that is blank, as from an empty file, counts as absent.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", str_strip_whitespace=True)

    redis_url: RedisUrl | None = Field(default=None, description="redis://HOST:PORT/DB: gate, live events, broker")
    broker_url: BrokerUrl | None = Field(default=None, description="the Celery broker, if it is not the Redis above")
    artifact_url: ArtifactUrl | None = Field(
        default=None, description="fsspec URL of the artifact store: file:///DIR, s3://…"
    )
    webhook_secret: WebhookSecret = Field(
        default=None, description="what webhooks are signed with: one secret, or the new one, a space and the old one"
    )
    max_body_bytes: Annotated[int, Field(ge=1_000)] = 10_000_000
    log_level: LogLevel = "INFO"

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if not (isinstance(value, str) and not value.strip())}


def loaded(kind: type[S], overrides: Mapping[str, Any], complaint: Callable[[ErrorDetails], str]) -> S:
    """The settings of this process.

    Args:
        kind: The class of the settings.
        overrides: Values that win over the environment, by field name; ``None`` is ignored.
        complaint: Makes the message for one error.

    Raises:
        ConfigError: Values are missing or not allowed; the message has one line for each.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return kind(**given)
    except ValidationError as invalid:
        raise ConfigError("\n".join(complaint(error) for error in invalid.errors())) from None


def refusal(variable: str, error: ErrorDetails, *, is_secret: bool) -> str:
    """What is wrong with the value of a variable; secrets and passwords are masked."""
    given = error.get("input")
    shown = "***" if is_secret else repr(masked(given) if isinstance(given, str) else given)
    message = "give 1 or 0" if error["type"] == "bool_parsing" else complaint(error)
    return f"{variable}={shown}: {message[:1].lower()}{message[1:]}"
