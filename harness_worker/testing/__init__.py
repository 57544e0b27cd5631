"""What tests need: real servers from wheels, and waiting with a deadline."""

from __future__ import annotations
