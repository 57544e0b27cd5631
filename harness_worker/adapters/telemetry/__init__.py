"""Where traces go."""

from __future__ import annotations
