"""A turn's events as they happen: heard from the workers, made whole from SQL, and written as server-sent events."""
