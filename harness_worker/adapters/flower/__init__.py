"""Flower: a page on the workers and their tasks."""

from __future__ import annotations
