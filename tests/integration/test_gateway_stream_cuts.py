"""Streams that are cut anywhere and then resumed give every durable event exactly once, in order."""

from __future__ import annotations

import http.client
import json
import random
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.integration.gateway_kit import Gateway

SEED: Final = 20_260
TURNS: Final = 10
CUTS: Final = 20
EVENTS: Final = 40
LONGEST_PIECE: Final = 400
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset: the server learns of it in the middle of whatever it does."""


class CutReader:
    """Reads a turn's stream in pieces: cuts the connection after some bytes and resumes after the last id.

    Args:
        gateway: The gateway.
        turn_id: The turn.
        seed: Decides where to cut.
    """

    def __init__(self, gateway: Gateway, turn_id: str, seed: int) -> None:
        self._address = urlsplit(gateway.url)
        self._path = f"/v1/turns/{turn_id}/events"
        self._random = random.Random(seed)  # noqa: S311 - not a secret
        self.events: list[dict[str, Any]] = []
        self.cuts = 0

    def read(self) -> list[dict[str, Any]]:
        """Every event with an id, in the order of arrival, until the stream ends by itself."""
        while not self._ended():
            is_last = self.cuts == CUTS
            self.events += _whole_events(self._piece(None if is_last else self._random.randint(1, LONGEST_PIECE)))
            self.cuts += not is_last
        return self.events

    def _ended(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] == "turn.completed"

    def _piece(self, size: int | None) -> bytes:
        """The next ``size`` bytes of the stream, or all that are left."""
        connection = http.client.HTTPConnection(str(self._address.hostname), self._address.port or 0, timeout=20)
        last = {"Last-Event-ID": str(self.events[-1]["seq"])} if self.events else {}
        connection.request("GET", self._path, headers={"Accept": "text/event-stream", **last})
        response = connection.getresponse()
        assert response.status == 200
        try:
            return response.read(size)
        finally:
            if connection.sock is not None and self._random.random() < 0.5:
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            response.close()
            connection.close()


def _whole_events(piece: bytes) -> Iterator[dict[str, Any]]:
    """The durable events in a piece; one whose final blank line is missing was cut and does not count."""
    for frame in piece.split(b"\n\n")[:-1]:
        fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if not line.startswith(b":"))
        if b"id" in fields:
            event = json.loads(fields[b"data"])
            assert int(fields[b"id"]) == event["seq"]
            yield event


@pytest.mark.one_database("sqlite")
def test_stream_cut_200_times_gives_each_event_once_in_order(gateway: Gateway) -> None:
    """The streams of ten live turns are cut 200 times at random bytes, and some live events are lost."""
    with ThreadPoolExecutor(2 * TURNS) as pool:
        turns = [gateway.posted()["id"] for _ in range(TURNS)]
        readers = [CutReader(gateway, turn_id, SEED + number) for number, turn_id in enumerate(turns)]
        reading = [pool.submit(reader.read) for reader in readers]
        for number in range(EVENTS):
            for turn_id in turns:
                gateway.worker.event(turn_id, "step.completed", live=number % 7 != 0, step=number, text="größe ☂")
                gateway.worker.send(turn_id, "model.delta", None, text="hint")
        for turn_id in turns:
            gateway.worker.finish(turn_id)
        told = [each.result(60) for each in reading]
        logs = [gateway.http.get(f"/v1/turns/{turn_id}/events?limit=1000").json()["data"] for turn_id in turns]
    assert sum(reader.cuts for reader in readers) == TURNS * CUTS == 200
    assert [[event["seq"] for event in events] for events in told] == [list(range(1, EVENTS + 3))] * TURNS
    assert told == logs
