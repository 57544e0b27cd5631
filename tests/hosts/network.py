"""Hosts in network namespaces of their own, on one switch whose cables can be pulled. Needs root and iproute2."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.debian import debian_program

_NAMESPACES: Final = Path("/var/run/netns")
_NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET of <sched.h>; ``os.setns`` came with Python 3.12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host.

    Args:
        name: Its name, also what its processes see as their host's.
        network: The network's name.
        address: Its only address, besides its loopback.
    """

    name: str
    network: str
    address: str

    @contextmanager
    def inside(self) -> Generator[None]:
        """Within the context this thread, with sockets that it makes and processes that it starts, is on the host."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _enter(os.open(_NAMESPACES / _namespace(self.network, self.name), os.O_RDONLY))
            yield
        finally:
            _enter(home)

    def command(self, *command: str) -> list[str]:
        """The command line of a process for which this host's name is the machine's."""
        return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name, *command]

    def cut(self) -> None:
        """Pull its cable: no packet comes or goes, and nobody is told."""
        _ip("-n", _namespace(self.network, "switch"), "link", "set", self.name, "down")

    def join(self) -> None:
        """Plug its cable in again."""
        _ip("-n", _namespace(self.network, "switch"), "link", "set", self.name, "up")


@contextmanager
def network(*names: str) -> Generator[dict[str, Host]]:
    """Hosts with these names, connected; they are removed at the end.

    Raises:
        OSError: Namespaces are not possible here; the message says what is missing.
    """
    prefix = f"h{os.getpid()}"
    hosts = {name: Host(name=name, network=prefix, address=f"10.77.0.{i}") for i, name in enumerate(names, start=1)}
    switch = _namespace(prefix, "switch")
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "lan", "type", "bridge")
        _ip("-n", switch, "link", "set", "lan", "up")
        for host in hosts.values():
            _connect(host, switch)
        yield hosts
    finally:
        for name in (*hosts, "switch"):
            with suppress(OSError):  # one that could not be made
                _ip("netns", "del", _namespace(prefix, name))


def _connect(host: Host, switch: str) -> None:
    mine = _namespace(host.network, host.name)
    _ip("netns", "add", mine)
    _ip("-n", switch, "link", "add", host.name, "type", "veth", "peer", "name", "eth0", "netns", mine)
    _ip("-n", switch, "link", "set", host.name, "master", "lan", "up")
    _ip("-n", mine, "address", "add", f"{host.address}/24", "dev", "eth0")
    for link in ("lo", "eth0"):
        _ip("-n", mine, "link", "set", link, "up")


def _namespace(prefix: str, name: str) -> str:
    return f"{prefix}-{name}"


def _ip(*arguments: str) -> None:
    done = subprocess.run([debian_program("ip", "iproute2"), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"`{' '.join(('ip', *arguments))}`: {done.stderr.strip()}")


def _enter(namespace: int) -> None:
    try:
        if ctypes.CDLL(None, use_errno=True).setns(namespace, _NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "the kernel does not let this process into a network namespace")
    finally:
        os.close(namespace)
