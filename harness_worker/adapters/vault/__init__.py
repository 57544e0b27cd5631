"""A vault of documents in a directory."""
