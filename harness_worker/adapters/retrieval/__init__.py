"""Ranking short texts by how well they fit words."""
