"""The user and password for Flower."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from harness_worker.config import Settings
from harness_worker.errors import ConfigError

VARIABLE: Final = "HARNESS_FLOWER_AUTH"
_USER: Final = "harness"
_PASSWORD_BYTES: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowerAccess:
    """A user and a password."""

    user: str
    password: str = field(repr=False)

    @property
    def credentials(self) -> str:
        """Both in the form of ``HARNESS_FLOWER_AUTH``: ``user:password``."""
        return f"{self.user}:{self.password}"

    def url(self, host: str, port: int) -> str:
        """A URL that can be used as it is; it contains the password."""
        return f"http://{quote(self.user, safe='')}:{quote(self.password, safe='')}@{host}:{port}"


def given_access(settings: Settings) -> FlowerAccess | None:
    """The access given in ``HARNESS_FLOWER_AUTH``, if it is set.

    Raises:
        ConfigError: It is not of the form ``user:password``; the message does not repeat it.
    """
    if settings.flower_auth is None:
        return None
    credentials = settings.flower_auth.get_secret_value()
    user, _, password = credentials.partition(":")
    if not (user and password and credentials.isascii() and credentials.isprintable()):
        raise ConfigError(f"{VARIABLE} is not user:password: give a name, a colon and a password, in ASCII")
    return FlowerAccess(user=user, password=password)


def new_access() -> FlowerAccess:
    """An access with a new password."""
    return FlowerAccess(user=_USER, password=secrets.token_urlsafe(_PASSWORD_BYTES))
