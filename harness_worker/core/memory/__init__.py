"""What is remembered of users over sessions."""
