"""The choice of the model for the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness_worker.config import Settings
from harness_worker.core.registration.model_names import SCRIPTED

CLAUDE: Final = "claude-sonnet-5-5"
SCRIPT: Final = Path(__file__).with_name("shop_script.jsonl")


def model_of(settings: Settings) -> str:
    """Claude if there is a key for it, else a recording, so that the demonstration needs no key."""
    return CLAUDE if settings.anthropic_api_key is not None else f"{SCRIPTED}{SCRIPT}"
