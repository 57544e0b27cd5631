"""Turns told to whoever asked for it, as Standard Webhooks says (docs/adr/0026-webhooks.md)."""
