"""JSON in the two forms the harness uses: compact for people and models, canonical for comparing."""

from __future__ import annotations

import json
from typing import Any

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_canonical = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def compact(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Compact JSON, non-ASCII characters kept."""
    return _compact.encode(value)


def canonical(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Compact JSON with sorted keys: equal values give equal text."""
    return _canonical.encode(value)
