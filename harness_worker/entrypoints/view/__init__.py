"""Shows turns and figures in a terminal: events are folded into lines, which are drawn live or plainly."""

from __future__ import annotations
