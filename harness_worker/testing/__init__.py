"""What tests need: real servers started from wheels, a stub of the Messages API, and waiting with a deadline."""

from __future__ import annotations
