"""Shared by ``harness gateway`` and ``harness flower``: listening sockets, and connections that are cut in time."""

from __future__ import annotations
