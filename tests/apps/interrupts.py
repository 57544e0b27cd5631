"""An app that gives up as if somebody had pressed Ctrl-C."""

from __future__ import annotations

raise KeyboardInterrupt
