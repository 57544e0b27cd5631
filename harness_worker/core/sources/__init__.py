"""What is found for a turn's words, and what an answer cites of it."""
