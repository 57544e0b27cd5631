"""Flower: web pages about the workers and their tasks."""

from __future__ import annotations
