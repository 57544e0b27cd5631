"""Evaluation of agents with a user's own cases: the cases, the result of each, and the figures of all."""

from __future__ import annotations
