"""What a call costs, by the prices that come with genai-prices; nothing is fetched."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Final

import genai_prices

from harness_worker.core.budget import Usage

log = logging.getLogger(__name__)

PROVIDER: Final = "anthropic"
UNKNOWN_MODELS_TOLD: Final = 1_000


def dollars_of(model: str, usage: Usage) -> float:
    """US dollars for one call; prices may depend on the size of a call, so never price a sum.

    Returns:
        Zero for a model without a known price, which is logged once a model.
    """
    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        return float(genai_prices.calc_price(counted, model, provider_id=PROVIDER).total_price)
    except LookupError:
        _tell_unknown(model)
        return 0.0


@lru_cache(maxsize=UNKNOWN_MODELS_TOLD)
def _tell_unknown(model: str) -> None:
    log.warning("no price is known for the model %r: its calls count no dollars, and no dollar budget ends them", model)
