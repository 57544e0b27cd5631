"""Work on threads: repeated at an interval, with a time limit, or on several items at once."""

from __future__ import annotations
