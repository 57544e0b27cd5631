"""API keys and webhook secrets: what the gateway and the command line share."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from typing import Final

KEY_PREFIX: Final = "hk_"
"""The prefix of the gateway's API keys, which nothing else that clients send in their place has."""

_KEY: Final = re.compile(KEY_PREFIX + "[A-Za-z0-9_-]{43}")


def key_digest(key: str) -> str | None:
    """What is stored of an API key: its SHA-256 in hexadecimal; ``None`` if it does not have the form of a key.

    After its prefix, a key is 256 random bits in base64url, so it cannot be found from its digest by trying keys.
    """
    return hashlib.sha256(key.encode()).hexdigest() if _KEY.fullmatch(key) else None


LEAST_SECRET_CHARS: Final = 24


def webhook_secrets(text: str) -> tuple[str, ...]:
    """The secrets in ``HARNESS_WEBHOOK_SECRET``: one, or the new one and the old one.

    Raises:
        ValueError: The text is anything else; the message says what to give, and does not repeat the text.
    """
    secrets = tuple(text.split())
    if len(secrets) not in (1, 2) or any(len(each) < LEAST_SECRET_CHARS or not each.isascii() for each in secrets):
        raise ValueError(
            f"give one secret of at least {LEAST_SECRET_CHARS} characters of ASCII (`openssl rand -hex 32` makes one), "
            "or the new one, a space and the old one"
        )
    return secrets


def tenant_webhook_secret(secret: str, tenant: str) -> str:
    """A tenant's own signing secret, in the form of Standard Webhooks; other tenants' cannot be derived from it."""
    derived = hmac.digest(secret.encode(), f"webhooks:{tenant}".encode(), "sha256")
    return f"whsec_{b64encode(derived).decode()}"
