"""Clients of a gateway that answers as a test says, without a network."""

from __future__ import annotations

from typing import Any

import httpx2

from harness_worker.client.client import GatewayClient


def client_given(*answers: httpx2.Response | Exception, **options: Any) -> GatewayClient:  # noqa: ANN401 - a client's
    """A client that gets one answer after the other, and the last one again and again."""
    left = list(answers)

    def answer(_: httpx2.Request) -> httpx2.Response:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return GatewayClient("http://gateway", transport=httpx2.MockTransport(answer), **options)
