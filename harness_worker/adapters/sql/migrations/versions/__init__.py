"""One module per revision."""

from __future__ import annotations
