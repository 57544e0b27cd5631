"""Celery apps that are set up by what they are given alone."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.app.utils import Settings
from celery.loaders.app import AppLoader


class GivenCelery(Celery):
    """Takes no settings from variables such as ``CELERY_BROKER_URL``: an application has them for its own app."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - Celery's own
        super().__init__(*args, loader=f"{__name__}:GivenLoader", **options)

    def on_init(self) -> None:
        """Have the URLs looked up among what was given; called by Celery once the app is made."""
        object.__setattr__(self.conf, "__class__", GivenSettings)  # a plain assignment would add a setting


class GivenLoader(AppLoader):
    """Reads no module of settings."""

    def read_configuration(self, env: str = "") -> Any:  # noqa: ANN401 - Celery's own
        """Nothing, instead of the module that ``CELERY_CONFIG_MODULE`` names."""


class GivenSettings(Settings):
    """Settings of which no variable replaces a URL."""

    @property
    def broker_url(self) -> str:
        """The broker, instead of ``CELERY_BROKER_URL``."""
        return self["broker_url"]

    @property
    def broker_read_url(self) -> str:
        """The broker, instead of ``CELERY_BROKER_READ_URL``."""
        return self["broker_url"]

    @property
    def broker_write_url(self) -> str:
        """The broker, instead of ``CELERY_BROKER_WRITE_URL``."""
        return self["broker_url"]

    @property
    def result_backend(self) -> Any:  # noqa: ANN401 - the gateway has none
        """The backend, instead of ``CELERY_RESULT_BACKEND``."""
        return self.get("result_backend")
