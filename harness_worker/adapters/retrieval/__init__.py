"""Ranks short texts by how well they fit a query."""
