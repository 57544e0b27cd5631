"""The socket that a service of the command line serves."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

from harness_worker.errors import ConfigError

_BACKLOG: Final = 2048


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address of this machine; port 0 picks a free one.

    Raises:
        ConfigError: That is not possible; the message says why.
    """
    family = socket.AF_INET6 if _is_ipv6(host) else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as refused:
        raise ConfigError(f"cannot serve {host} port {port}: {refused.strerror}; see --host and --port") from None


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
