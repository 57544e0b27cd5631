"""What clients send: read within bounds, parsed strictly, and checked."""
