"""Agents as models of OpenAI's API: turns are requested and answered in its terms (docs/adr/0021-openai-facade.md)."""
