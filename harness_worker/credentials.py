"""API keys and the secrets of webhooks: what both the gateway and the command line know of them."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from typing import Final

KEY_PREFIX: Final = "hk_"
"""How an API key of the gateway begins, and nothing else that clients send in its place."""

_KEY: Final = re.compile(KEY_PREFIX + "[A-Za-z0-9_-]{43}")


def key_digest(key: str) -> str | None:
    """What is kept of an API key: its SHA-256 in hexadecimal; ``None`` if no key looks like that.

    A key is 256 random bits in base64url behind its prefix, so nobody finds one by its digest, however fast that is.
    """
    return hashlib.sha256(key.encode()).hexdigest() if _KEY.fullmatch(key) else None


LEAST_SECRET_CHARS: Final = 24


def webhook_secrets(text: str) -> tuple[str, ...]:
    """The secrets in ``HARNESS_WEBHOOK_SECRET``: one, or the new one and the old one.

    Raises:
        ValueError: It does not hold that; the message says what to give, and repeats nothing.
    """
    secrets = tuple(text.split())
    if len(secrets) not in (1, 2) or any(len(each) < LEAST_SECRET_CHARS or not each.isascii() for each in secrets):
        raise ValueError(
            f"give one secret of at least {LEAST_SECRET_CHARS} characters of ASCII (`openssl rand -hex 32` makes one), "
            "or the new one, a space and the old one"
        )
    return secrets


def tenant_webhook_secret(secret: str, tenant: str) -> str:
    """What a tenant's webhooks are signed with, as Standard Webhooks writes it; it does not tell other tenants'."""
    derived = hmac.digest(secret.encode(), f"webhooks:{tenant}".encode(), "sha256")
    return f"whsec_{b64encode(derived).decode()}"
