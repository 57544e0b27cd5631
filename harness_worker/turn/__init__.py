"""The application: driving turns and running calls, through ports only."""

from __future__ import annotations
