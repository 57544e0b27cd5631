"""Where a fault may strike: the boundaries of the protocol, in the order in which a turn meets them."""

from __future__ import annotations

from enum import StrEnum


class Point(StrEnum):
    """One boundary."""

    AFTER_CLAIM = "after_claim"
    """A coordinator has committed its claim of the turn."""
    BEFORE_MODEL = "before_model"
    MID_STREAM = "mid_stream"
    """The model has said a piece of its text."""
    AFTER_MODEL = "after_model"
    """The whole reply has arrived; nothing of it is committed."""
    BEFORE_COMMIT = "before_commit"
    """A coordinator has decided, under the turn's lock; nothing is written."""
    AFTER_COMMIT = "after_commit"
    """What a coordinator decided is committed; nothing is sent."""
    IN_FINALIZE = "in_finalize"
    """Like ``BEFORE_COMMIT``, for the commit that ends the turn."""
    BEFORE_PUBLISH = "before_publish"
    AFTER_PUBLISH = "after_publish"
    AFTER_ADMIT = "after_admit"
    """The gate has let a read start, or the journal a write; its body has not been entered."""
    INSIDE_TOOL = "inside_tool"
    """The body's time runs, but it has not done anything."""
    AFTER_EFFECT = "after_effect"
    """The body has done everything, but nothing has been reported."""
    AFTER_RECEIPT = "after_receipt"
    """The journal has a write's outcome; the canvas has not gone on yet."""
    AFTER_GATE = "after_gate"
    """The gate has a read's outcome; the canvas has not gone on yet."""
    BEFORE_ACK = "before_ack"
    """The canvas has gone on; the message is not acknowledged."""
    IN_VISIT_HEARTBEAT = "in_visit_heartbeat"
    IN_CALL_HEARTBEAT = "in_call_heartbeat"
    IN_RECONCILER = "in_reconciler"
    """Overdue turns were taken from the journal; none has been woken."""
