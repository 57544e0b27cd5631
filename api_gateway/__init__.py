"""The HTTP service: it stores what clients ask for and reports what became of it; it never runs turns or tools."""
