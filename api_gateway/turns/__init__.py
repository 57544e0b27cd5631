"""Turns in SQL: making, forking and answering them, and reading them."""
