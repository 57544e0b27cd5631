"""A turn's events as they happen: heard from the workers, completed from SQL, and sent as server-sent events."""
