"""Documents in a directory."""
