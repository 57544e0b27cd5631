"""How a running turn looks in a terminal: events folded into lines, lines drawn live or plainly."""

from __future__ import annotations
