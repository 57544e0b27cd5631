"""The app of the long conversation, and what is said in it."""

from __future__ import annotations
