"""Whether a gateway accepts the webhook of a request."""

from __future__ import annotations

from collections.abc import Sequence

from api_gateway.config import Settings
from api_gateway.problems import invalid_at
from api_gateway.requests.webhook_urls import is_closed_literal


def check_webhook(url: str | None, settings: Settings, loc: Sequence[str | int] = ("body", "webhook")) -> None:
    """Refuse a webhook that could never be delivered; ``loc`` is its place in the request.

    Raises:
        Problem: 422 ``invalid_request``; it says what to do.
    """
    if url is None:
        return
    if settings.webhook_secret is None:
        raise invalid_at(
            loc,
            "this gateway delivers no webhooks: its operator must set HARNESS_WEBHOOK_SECRET; leave it out until then",
        )
    if not settings.webhook_private and is_closed_literal(url):
        raise invalid_at(loc, "its host's address is not a public one; give one that is")
