"""Environments with which no connection can be made."""

from __future__ import annotations

from typing import Final

PASSWORD: Final = "s3cret"  # noqa: S105 - a proxy's, which nobody may be shown
UNUSABLE: Final = (
    ("SSL_CERT_FILE", "/nonexistent"),
    ("SSL_CERT_FILE", __file__),
    ("HTTPS_PROXY", f"http://u:{PASSWORD}/@proxy"),
    ("ALL_PROXY", f"gopher://u:{PASSWORD}@proxy"),
)
"""Variables that name certificates or a proxy which cannot be used."""
