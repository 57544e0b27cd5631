"""Delivery of turns' webhooks, as Standard Webhooks specifies it (docs/adr/0026-webhooks.md)."""
