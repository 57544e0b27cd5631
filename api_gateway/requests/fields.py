"""Single values that clients send, and what each may be wherever it occurs."""

from __future__ import annotations

from typing import Annotated, Any, Final, cast

from pydantic import AfterValidator, BeforeValidator, Field

from api_gateway.requests.closed import FEW_PAIRS
from harness_worker.wire import MAX_METADATA_CHARS, MAX_METADATA_PAIRS, MAX_SESSION_ID_CHARS, storable

METADATA_PREFIX: Final = "metadata."
MAX_SEQ: Final = 2**31 - 1
LONGEST_ID: Final = 64


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
Metadata = Annotated[dict[MetadataText, MetadataText], Field(max_length=MAX_METADATA_PAIRS), FEW_PAIRS]
StorableObject = Annotated[dict[str, Any], AfterValidator(_storable)]
