"""Scores of turns that are over: the rules of a score that is due, and what a model that judges is asked."""
