"""Agents as models of OpenAI's API: turns asked for and told in its words (docs/adr/0021-openai-facade.md)."""
