"""Approvals within the calling process: a function is asked about each call that waits for a person."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

from harness_worker.core.approvals import Answer, answer, waiting
from harness_worker.core.records import Call
from harness_worker.core.registration.author_code import shown
from harness_worker.core.registration.content import to_json
from harness_worker.core.text import clean_text
from harness_worker.ports import TurnStore
from harness_worker.turn.results import RequiredAction, required_action

log = logging.getLogger(__name__)

Approver: TypeAlias = Callable[[RequiredAction], bool | str | Mapping[str, Any]]
"""Given ``{call_id, tool, arguments, expires_at}``, returns ``True`` to run the call, a mapping to run it with those
arguments instead, ``False`` to deny it, or a text to deny it with that reason, which the model reads."""


def nobody(_action: RequiredAction) -> str:
    """Deny every call."""
    return "nobody is there to approve"


def answer_all(store: TurnStore, turn_id: str, approve: Approver, untaken: dict[str, Answer]) -> bool:
    """Ask about every waiting call of the turn, and return whether there were any.

    Args:
        store: The journal.
        turn_id: The turn.
        approve: Asked about each call.
        untaken: The turn's answers that the journal has not taken, by call id; nobody is asked for them again.

    Raises:
        TransientError: The journal did not answer.
    """
    loaded = store.load(turn_id)
    asked = waiting(loaded.calls) if loaded is not None else ()
    for call in asked:
        if call.call_id not in untaken:
            untaken[call.call_id] = _answer_of(approve, call)
        store.transact(turn_id, partial(answer, call_id=call.call_id, said=untaken[call.call_id]))
        del untaken[call.call_id]
    return bool(asked)


def _answer_of(approve: Approver, call: Call) -> Answer:
    try:
        verdict = approve(required_action(call))
        if isinstance(verdict, Mapping):
            return Answer(decision="approve", arguments=cast("dict[str, Any]", to_json(dict(verdict))))
    except Exception as error:  # noqa: BLE001 - never raises: the function is the caller's, and the turn must go on
        log.warning("approve failed, call %s of %s is denied: %s", call.call_id, call.tool, shown(error))
        verdict = f"approving failed: {type(error).__name__}"
    if isinstance(verdict, str):
        return Answer(decision="deny", reason=clean_text(verdict))
    if type(verdict) is not bool:  # none was returned, or an async function's promise
        wrong = "approve returned %s, not True, False, arguments or a reason; call %s of %s is denied"
        log.warning(wrong, type(verdict).__name__, call.call_id, call.tool)
    return Answer(decision="approve" if verdict is True else "deny")
