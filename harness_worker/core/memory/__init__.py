"""What is remembered about users across sessions."""
