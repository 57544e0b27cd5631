"""The headers of a webhook, signed as Standard Webhooks says (spec, "Signature scheme", with symmetric keys)."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence

from harness_worker.credentials import tenant_webhook_secret


def message_id(turn_id: str, seq: int) -> str:
    """What an event is known by, however often it is told; holds no full stop, which parts what is signed."""
    return f"{turn_id}_{seq}"


class Signer:
    """Signs with each tenant's own secrets.

    Args:
        secrets: What they are derived from, the newest first: a receiver may know any of them.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = tuple(secrets)

    def headers(self, tenant: str, webhook_id: str, at: float, body: bytes) -> dict[str, str]:
        """The headers by which a receiver knows who sent ``body``, and when, in seconds since the epoch."""
        signed = f"{webhook_id}.{int(at)}.".encode() + body
        signatures = (_signature(tenant_webhook_secret(secret, tenant), signed) for secret in self._secrets)
        return {
            "webhook-id": webhook_id,
            "webhook-timestamp": str(int(at)),
            "webhook-signature": " ".join(signatures),
        }


def _signature(secret: str, signed: bytes) -> str:
    key = b64decode(secret.removeprefix("whsec_"))
    return f"v1,{b64encode(hmac.digest(key, signed, 'sha256')).decode()}"
