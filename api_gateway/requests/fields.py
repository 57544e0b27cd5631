"""What request bodies have in common, and what single values may be wherever clients send them.

What is wrong is counted before it is reported: an error costs more to report than to send, and a body may have hundreds
of thousands of them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from api_gateway.problems import MOST_PROBLEMS
from harness_worker.validation import MAX_METADATA_CHARS, MAX_METADATA_PAIRS, MAX_SESSION_ID_CHARS, storable

METADATA_PREFIX: Final = "metadata."
MAX_SEQ: Final = 2**31 - 1
LONGEST_ID: Final = 64


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
    """The metadata unchanged; its pairs are counted before any of them is looked at."""
    if isinstance(given, dict) and len(cast("dict[str, Any]", given)) > MAX_METADATA_PAIRS:
        raise ValueError(f"must have at most {MAX_METADATA_PAIRS} pairs")
    return given  # pyright: ignore[reportUnknownVariableType]


def _storable(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The value unchanged, if any database can hold every text in it."""
    if isinstance(value, str):
        storable(value)
    elif isinstance(value, dict):
        for name, member in cast("dict[str, Any]", value).items():
            storable(name)
            _storable(member)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _storable(item)
    return value  # pyright: ignore[reportUnknownVariableType]


def is_id(text: str, longest: int = LONGEST_ID) -> bool:
    """Whether a text from a path could be an id in the database; an id that no database can hold is not found."""
    return "\0" not in text and len(text) <= longest


def number_in(text: str) -> int:
    """The number in a query or a header, of ASCII digits alone; one beyond any row's counts as ``MAX_SEQ``.

    Raises:
        ValueError: It is not such a number.
    """
    if not (text.isascii() and text.isdigit()):
        raise ValueError("must be a non-negative integer")
    return min(int(text), MAX_SEQ) if len(text) <= 20 else MAX_SEQ


Text = Annotated[str, AfterValidator(storable)]
ShortText = Annotated[Text, Field(min_length=1, max_length=MAX_SESSION_ID_CHARS)]
MetadataText = Annotated[Text, Field(max_length=MAX_METADATA_CHARS)]
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = BeforeValidator(lambda given: number_in(given) if isinstance(given, str) else given)
Metadata = Annotated[
    dict[MetadataText, MetadataText], Field(max_length=MAX_METADATA_PAIRS), BeforeValidator(_few_pairs)
]
StorableObject = Annotated[dict[str, Any], AfterValidator(_storable)]
