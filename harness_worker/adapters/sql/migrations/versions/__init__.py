"""One module a revision."""

from __future__ import annotations
