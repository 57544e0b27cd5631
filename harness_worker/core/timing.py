"""The times of the protocol, as the settings give them (docs/reference/settings.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """All in seconds, except ``attempt_cap``.

    Args:
        lease_ttl_s: How long a visit or a running call is presumed alive without a heartbeat.
        visit_s: How long one visit may last, even if its heartbeats continue; each further model call prolongs it.
        look_s: How soon the first look-in follows while tools run; later ones are twice as far apart.
        hard_s: How long after its soft limit a tool's process is killed.
        grace_s: How long after that its outcome may still arrive.
        attempt_cap: How many times a call may be run before it counts as lost for good.
        approval_s: How long a person may take to answer, unless the call's tool says otherwise.
    """

    lease_ttl_s: float
    visit_s: float
    look_s: float
    hard_s: float
    grace_s: float
    attempt_cap: int
    approval_s: float
