"""The cost of a call, by the prices that are part of the package genai-prices; nothing is downloaded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

import genai_prices

from harness_worker.core.budget import Usage

log = logging.getLogger(__name__)

PROVIDER: Final = "anthropic"
UNKNOWN_MODELS_TOLD: Final = 1_000


def dollars_of(models: Sequence[str], usage: Usage, *, hour_tokens: int, searches: int) -> float:
    """The cost of one call in US dollars. Prices may depend on a call's size, so never price the sum of several.

    Args:
        models: The names of its model; the first one with a price is used.
        usage: Its tokens.
        hour_tokens: How many of the tokens written to the cache stay there for an hour, which costs more.
        searches: How many times the provider searched the web for it, which a proxy may have allowed.

    Returns:
        Zero for a model without a known price, which is logged once for each model.
    """
    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=min(hour_tokens, usage.cache_write_tokens),
        web_searches=searches,
    )
    for model in models:
        with suppress(LookupError):
            return float(genai_prices.calc_price(counted, model, provider_id=PROVIDER).total_price)
    _tell_unknown(models[0])
    return 0.0


@lru_cache(maxsize=UNKNOWN_MODELS_TOLD)
def _tell_unknown(model: str) -> None:
    log.warning("no price is known for the model %r: its calls count as $0, and no dollar budget ends them", model)
