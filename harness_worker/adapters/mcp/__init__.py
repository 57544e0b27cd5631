"""Tools of servers that speak the Model Context Protocol. Only who names such a server loads its SDK."""

from __future__ import annotations
