"""Exports traces."""

from __future__ import annotations
