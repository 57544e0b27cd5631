"""Where webhooks may go: the URL a client gives, and which addresses of the network are open to it.

A URL is read by one parser, here and when it is called, so that what was checked is what is called.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from pydantic import HttpUrl, ValidationError

MAX_URL_CHARS: Final = 2_000
MAX_HOST_CHARS: Final = 253
"""Of a name in DNS."""

_SHUT: Final = (
    IPv4Network("192.0.0.0/24"),  # the protocols' own, and a cloud's metadata
    IPv4Network("168.63.129.16/32"),  # a cloud's host, at an address that is public by its number
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
"""IPv4 as hosts without IPv4 reach it (RFC 6052); the last 32 bits are the address."""


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
    """The parts of a URL, as browsers read it; its text is ASCII.

    Raises:
        ValueError: It is none of HTTP, or has no host.
    """
    try:
        url = HttpUrl(text)
    except ValidationError:
        url = None
    if url is None or not url.host or len(url.host) > MAX_HOST_CHARS or not text.isprintable() or " " in text:
        raise ValueError("must be an http:// or https:// URL with a host")
    return url


def host_of(text: str) -> str:
    """Whom such a URL calls, by name or address."""
    return str(parsed(text).host)


def is_closed_literal(text: str) -> bool:
    """Whether such a URL names an address that is closed; a name is judged by what it stands for, when it is called."""
    host = host_of(text).strip("[]")
    try:
        return not is_public(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_public(address: str) -> bool:
    """Whether an address, written as a number, is one of the public internet.

    Raises:
        ValueError: It is no address.
    """
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        inner = _translated(found)
        return _is_public_v6(found) if inner is None else _is_public_v4(inner)
    return _is_public_v4(found)


def _translated(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that one of IPv6 stands for."""
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


def _is_public_v6(address: IPv6Address) -> bool:
    is_tunnel = address.sixtofour is not None or address.teredo is not None
    return address in _GLOBAL_UNICAST and address.is_global and not is_tunnel


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not address.is_multicast and not any(address in each for each in _SHUT)
