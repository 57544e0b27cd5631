"""Checks of what a turn is asked with, where no gateway has made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from harness_worker.wire import MAX_METADATA_CHARS, MAX_METADATA_PAIRS, MAX_SESSION_ID_CHARS, storable


def option_problems(
    *, user_message: object, session_id: object, metadata: object, parallel: object, **texts: object
) -> Iterator[str]:
    """What is wrong with a turn's options, whatever a caller wrote, one line each.

    Args:
        user_message: What the user said.
        session_id: The conversation.
        metadata: What is to be kept with the turn.
        parallel: Whether calls may run side by side.
        texts: Further texts, by name.
    """
    yield from _text_problems("user_message", user_message)
    for name, text in texts.items():
        if text is not None:
            yield from _text_problems(name, text)
    if session_id is not None:
        yield from _text_problems("session_id", session_id, longest=MAX_SESSION_ID_CHARS)
        if session_id == "":
            yield "session_id must not be empty; None begins a new session"
    if metadata is not None:
        yield from _metadata_problems(metadata)
    if parallel is not None and not isinstance(parallel, bool):
        yield f"parallel must be True or False, not {parallel!r}"


def _metadata_problems(metadata: object) -> Iterator[str]:
    if not isinstance(metadata, Mapping):
        yield f"metadata must be a dict of strings, not {type(metadata).__name__}"
        return
    pairs = cast("Mapping[object, object]", metadata)
    if len(pairs) > MAX_METADATA_PAIRS:
        yield f"metadata must have at most {MAX_METADATA_PAIRS} pairs, not {len(pairs)}"
    for key, value in pairs.items():
        yield from _text_problems(f"metadata's key {_shown(key)}", key, longest=MAX_METADATA_CHARS)
        yield from _text_problems(f"metadata[{_shown(key)}]", value, longest=MAX_METADATA_CHARS)


def _text_problems(name: str, text: object, *, longest: int | None = None) -> Iterator[str]:
    if not isinstance(text, str):
        yield f"{name} must be a string, not {type(text).__name__}"
        return
    try:
        storable(text)
    except ValueError as error:
        yield f"{name} {error}"
    if longest is not None and len(text) > longest:
        yield f"{name} must have at most {longest} characters, not {len(text)}"


def _shown(key: object) -> str:
    return ascii(key)[:60]
