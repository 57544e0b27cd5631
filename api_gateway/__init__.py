"""The HTTP service: it stores what clients ask for and tells what became of it; it never runs anything."""
