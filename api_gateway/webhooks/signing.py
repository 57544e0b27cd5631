"""The headers of a webhook, signed as Standard Webhooks says (spec, "Signature scheme", with symmetric keys)."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence

from harness_worker.credentials import tenant_webhook_secret


def message_id(turn_id: str, seq: int) -> str:
    """The id of an event, the same for each attempt; it has no full stop, which separates the signed parts."""
    return f"{turn_id}_{seq}"


class Signer:
    """Signs webhooks with each tenant's own secrets.

    Args:
        secrets: The operator's secrets, newest first; each tenant's are derived from them, and endpoints may have any.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = tuple(secrets)

    def headers(self, tenant: str, webhook_id: str, at: float, body: bytes) -> dict[str, str]:
        """The headers that sign ``body``, which is sent at ``at``, in seconds since the epoch."""
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
