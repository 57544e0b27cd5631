"""Turns in SQL: how one is made, forked and answered, and what is read of them."""
