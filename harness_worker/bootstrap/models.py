"""Clients for the models that a worker's agents and judges use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Final

from harness_worker.adapters.anthropic.missing_key import MissingKey
from harness_worker.adapters.scripted.client import ScriptedModel
from harness_worker.config import Settings
from harness_worker.core.registration.model_names import SCRIPTED
from harness_worker.ports import ModelClient

_CLAUDE: Final = "harness_worker.adapters.anthropic.client"


def make_models(settings: Settings, models: Iterable[str]) -> Mapping[str, ModelClient]:
    """The clients that these models need, by the prefix of the model's name.

    Anthropic's SDK takes seconds to load on a slow machine, so it is loaded only if it is needed.
    """
    wants_claude = any(not model.startswith(SCRIPTED) for model in models)
    return {SCRIPTED.rstrip(":"): ScriptedModel(), **({"": _claude(settings)} if wants_claude else {})}


def _claude(settings: Settings) -> ModelClient:
    key = settings.anthropic_api_key
    if key is None:
        return MissingKey()
    return import_module(_CLAUDE).AnthropicModel(key.get_secret_value(), settings.anthropic_base_url)
