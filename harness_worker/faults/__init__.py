"""Injects faults at boundaries of the protocol, for drills and tests. Without ``HARNESS_FAULTS`` nothing is wrapped.

``HARNESS_FAULTS`` names a directory. Its file ``plan`` says what is to go wrong where (:mod:`.plan`), and may change at
any time; faults that struck are recorded in its file ``fired`` (:mod:`.ledger`).
"""

from __future__ import annotations

from harness_worker.faults.injector import Faults
from harness_worker.faults.ledger import Ledger
from harness_worker.faults.plan import Action, Fault, parse_plan, write_plan
from harness_worker.faults.points import Point
from harness_worker.faults.wrapping import faulty_deadline, faulty_fleet, faulty_models, strike_before_ack

__all__ = [
    "Action",
    "Fault",
    "Faults",
    "Ledger",
    "Point",
    "faulty_deadline",
    "faulty_fleet",
    "faulty_models",
    "parse_plan",
    "strike_before_ack",
    "write_plan",
]
