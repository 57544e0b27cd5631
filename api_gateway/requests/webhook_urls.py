"""Where webhooks may go: which URLs a client may give, and which network addresses they may lead to.

The same parser reads a URL here and when it is called, so that what was checked is what is called.
"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from pydantic import HttpUrl, ValidationError

MAX_URL_CHARS: Final = 2_000
MAX_HOST_CHARS: Final = 253
"""The longest name in DNS."""

_SHUT: Final = (
    IPv4Network("192.0.0.0/24"),  # IETF protocol assignments, and a cloud's metadata service
    IPv4Network("168.63.129.16/32"),  # a cloud's host service, at an address that is public by its number
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
"""The IPv6 addresses by which hosts without IPv4 reach it (RFC 6052); the last 32 bits are the IPv4 address."""


def webhook_url(text: str) -> str:
    """``text``, if it is a URL that can be called.

    Raises:
        ValueError: It is not; the message says what to give.
    """
    url = parsed(text)
    if url.username is not None or url.password is not None:
        raise ValueError("must not hold a user or a password; put a token in its path or query")
    if url.fragment is not None:
        raise ValueError("must not hold a fragment (#…), which no server is sent")
    return text


def parsed(text: str) -> HttpUrl:
    """A URL, parsed as browsers do; the result's text is ASCII.

    Raises:
        ValueError: It is not an HTTP URL, or has no host.
    """
    with suppress(ValidationError):
        url = HttpUrl(text)
        if url.host and len(url.host) <= MAX_HOST_CHARS and text.isprintable() and " " not in text:
            return url
    raise ValueError("must be an http:// or https:// URL with a host")


def host_of(text: str) -> str:
    """The host of such a URL, a name or an address."""
    return str(parsed(text).host)


def is_closed_literal(text: str) -> bool:
    """Whether such a URL contains an address that is not public; a name is judged by its address, when it is called."""
    host = host_of(text).strip("[]")
    try:
        return not is_public(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_public(address: str) -> bool:
    """Whether an IP address in text form is one of the public internet.

    Raises:
        ValueError: It is not an IP address.
    """
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        inner = _translated(found)
        return _is_public_v6(found) if inner is None else _is_public_v4(inner)
    return _is_public_v4(found)


def _translated(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for; ``None`` if for none."""
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


def _is_public_v6(address: IPv6Address) -> bool:
    is_tunnel = address.sixtofour is not None or address.teredo is not None
    return address in _GLOBAL_UNICAST and address.is_global and not is_tunnel


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not address.is_multicast and not any(address in each for each in _SHUT)
