"""Ports that a service cannot have."""

from __future__ import annotations

import pytest

from harness_worker.adapters.embedded import ports
from harness_worker.errors import ConfigError


def test_port_in_use_is_told_from_one_that_is_not_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is sent to look for a process that does not exist."""
    with ports.listening_socket() as taken:
        port = ports.port_of(taken)
        with pytest.raises(ConfigError, match=rf"^port {port} is in use on 127.0.0.1: stop what uses it, or choose"):
            ports.listening_socket(port)
    monkeypatch.setattr(ports, "LOOPBACK", "192.0.2.1")  # an address that no machine has
    with pytest.raises(ConfigError, match=r"cannot be used \(Cannot assign requested address\): choose another"):
        ports.listening_socket(port)
    with pytest.raises(ConfigError, match=r"^no free port was found on 192.0.2.1: choose another with --port"):
        ports.listening_socket()
