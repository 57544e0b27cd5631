"""The socket on which a service of the command line listens."""

from __future__ import annotations

import ipaddress
import resource
import socket
import sys
from typing import Final

from harness_worker.errors import ConfigError

STALLED_MS: Final = 30_000
_BACKLOG: Final = 2048


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address of this machine; port 0 picks a free one.

    Its connections send at once (``TCP_NODELAY``). Otherwise a body would wait up to 40 ms for the acknowledgement of
    its head; asyncio sets that only on sockets that name their protocol, as those of ``create_server`` do not.

    Raises:
        ConfigError: Listening there is not possible; the message says why. A blank address, as from an unset shell
            variable, would be every address of this machine.
    """
    if not host.strip():
        raise ConfigError("--host is blank: name an address, or leave it out; 0.0.0.0 is every one of this machine")
    family = socket.AF_INET6 if _is_ipv6(host) else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as refused:
        why = str(refused.strerror).partition(" (while attempting")[0]  # Python repeats the address
        raise ConfigError(f"cannot serve {host} port {port}: {why}; see --host and --port") from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by connections
    return listener


def cut_stalled(listener: socket.socket) -> None:
    """Have the kernel cut each accepted connection whose client takes no data for 30 s although some is sent.

    The service does not wait for such clients; a stream of events is resumed by its last id. Linux only: elsewhere a
    stalled client keeps its connection until it goes.
    """
    if sys.platform == "linux":
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MS)


def allow_all_descriptors() -> None:
    """Let this process open as many files as the system allows; the default is often only a thousand."""
    if sys.platform == "linux":
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
