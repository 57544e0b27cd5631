"""Work on threads: repeated at an interval, with a time limit, several items at once."""

from __future__ import annotations
