"""Tools of servers that speak the Model Context Protocol. Only applications that name such a server load its SDK."""

from __future__ import annotations
