"""JSON in the two forms the harness uses: compact for people and models, canonical for comparing."""

from __future__ import annotations

import json
from typing import Any


def compact(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Compact JSON, non-ASCII characters kept."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def canonical(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Compact JSON with sorted keys: equal values give equal text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
