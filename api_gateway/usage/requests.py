"""Query parameters of the usage endpoints."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from api_gateway.problems import invalid_at
from api_gateway.requests.fields import METADATA_PREFIX, Number
from api_gateway.requests.queries import Narrowing

USUAL_S: Final = 30 * 86_400.0
LONGEST_S: Final = 366 * 86_400.0
BEYOND_S: Final = 250_000_000_000.0
"""A time, in seconds since the epoch, that Python's calendar does not reach."""

MOST_GROUPS: Final = 1_000

COLUMNS: Final = ("agent", "day", "model", "session", "status")
"""What turns may be grouped by, apart from their metadata."""

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d))?", re.ASCII)


def moment(text: object) -> object:
    """An RFC 3339 time, or the beginning of a day in UTC, as seconds since the epoch; a value that is no text stays.

    Raises:
        ValueError: The text is neither a time nor a day, or no turn can be of that time.
    """
    if not isinstance(text, str):
        return text
    spaced = re.sub(r" (?=\d\d:\d\d$)", "+", text)  # a plus in a URL becomes a space
    try:
        at = _read(spaced.upper()) if _MOMENT.fullmatch(spaced) else None
    except ValueError:
        at = None
    if at is None:
        raise ValueError("give a time with its zone, such as 2026-01-31T18:00:00Z, or a day, 2026-01-31")
    if not 0.0 <= at < BEYOND_S:
        raise ValueError("lies before 1970 or too far ahead")
    return at


def _read(text: str) -> float:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _grouping(by: str) -> str:
    if "\0" not in by and (by in COLUMNS or by.removeprefix(METADATA_PREFIX) not in ("", by)):
        return by
    raise ValueError(f"give {', '.join(COLUMNS)} or {METADATA_PREFIX}KEY")


Moment = Annotated[
    float, BeforeValidator(moment), WithJsonSchema({"type": "string", "examples": ["2026-01-31T18:00:00Z"]})
]


class UsageQuery(Narrowing):
    """Which turns to add up, of which period, grouped by what."""

    begin: Moment | None = Field(
        default=None, alias="from", description="turns made then or later; RFC 3339. Default: 30 days before `to`"
    )
    end: Moment | None = Field(default=None, alias="to", description="turns made before then; RFC 3339. Default: now")
    by: Annotated[str, AfterValidator(_grouping)] = Field(
        default="agent", description="`agent`, `day` (UTC), `model`, `session`, `status`, `metadata.KEY`"
    )
    limit: Annotated[int, Field(ge=1, le=MOST_GROUPS), Number] = Field(
        default=MOST_GROUPS, description="how many groups to return: the costliest, or the newest days"
    )

    @model_validator(mode="after")
    def _some_time(self) -> Self:
        if self.begin is not None and self.end is not None and self.begin >= self.end:
            raise ValueError("`from` must be before `to`")
        return self

    def span(self, now: float) -> tuple[float, float]:
        """The period's beginning and end, in seconds since the epoch.

        Raises:
            Problem: 422 ``invalid_request``: the period lies in the future, or is too long.
        """
        end = now if self.end is None else self.end
        begin = max(0.0, end - USUAL_S) if self.begin is None else self.begin
        if begin > end:
            raise invalid_at(["query", "from"], "lies in the future")
        if end - begin > LONGEST_S:
            raise invalid_at(["query", "from"], "lies more than 366 days before `to`: ask for a shorter period")
        return begin, end
