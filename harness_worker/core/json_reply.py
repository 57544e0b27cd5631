"""The JSON object in what a model replied, whatever it said around it."""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

_OBJECT: Final = re.compile(r"\{.*\}", re.DOTALL)


def object_in(text: str) -> dict[str, Any]:
    """The object from the first brace to the last; empty if that is none."""
    found = _OBJECT.search(text)
    try:
        said: object = json.loads(found.group()) if found is not None else None
    except ValueError:
        return {}
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}
