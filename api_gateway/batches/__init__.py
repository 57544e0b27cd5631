"""Batches: many turns that are posted, watched, cancelled and fetched together."""
