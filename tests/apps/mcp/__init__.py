"""A server that speaks the Model Context Protocol."""

from __future__ import annotations
