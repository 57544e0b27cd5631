"""Text that every database and every provider can hold."""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """``text`` with U+0000 and lone surrogates as U+FFFD; a pair of surrogates becomes its character."""
    if _UNSTORABLE.search(text) is None:
        return text
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return paired.replace("\x00", REPLACEMENT)
