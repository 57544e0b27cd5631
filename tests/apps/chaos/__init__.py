"""An application whose effects somebody outside of the harness counts."""

from __future__ import annotations
