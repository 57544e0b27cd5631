"""Evaluation of agents by their users' own cases: what a case is, what became of it, and what all came to."""

from __future__ import annotations
