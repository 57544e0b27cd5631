"""What clients send: read within limits, parsed strictly, and validated."""
