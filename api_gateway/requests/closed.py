"""Strict request bodies: unknown members are refused, cheaply.

An error costs more to report than to send, and a body may have hundreds of thousands of them.
"""

from __future__ import annotations

from typing import Any, Final, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from api_gateway.problems import MOST_PROBLEMS
from harness_worker.wire import MAX_METADATA_PAIRS


class ClosedBody(BaseModel):
    """A JSON object with only the model's members. More than ``MOST_PROBLEMS`` unknown ones make a single error."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _few_unknown(cls, given: Any) -> Any:  # noqa: ANN401 - any JSON
        if isinstance(given, dict):
            unknown = len(cast("dict[str, Any]", given).keys() - cls.model_fields.keys())
            if unknown > MOST_PROBLEMS:
                raise ValueError(f"{unknown} unknown fields; there are: {', '.join(cls.model_fields)}")
        return given  # pyright: ignore[reportUnknownVariableType]


def _few_pairs(given: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(given, dict) and len(cast("dict[str, Any]", given)) > MAX_METADATA_PAIRS:
        raise ValueError(f"must have at most {MAX_METADATA_PAIRS} pairs")
    return given  # pyright: ignore[reportUnknownVariableType]


FEW_PAIRS: Final = BeforeValidator(_few_pairs)
"""Counts the pairs of metadata before any of them is looked at."""
