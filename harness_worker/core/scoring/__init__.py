"""Scores of ended turns: the rules of a score that is due, and the prompt of a model that judges."""
