"""``harness gateway``: the HTTP service alone."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from types import FrameType
from typing import Annotated, Final

import typer
import uvicorn

from harness_worker.config import load_settings
from harness_worker.entrypoints.exiting import exit_at_once
from harness_worker.entrypoints.loading import loading
from harness_worker.entrypoints.serving.listening import allow_all_descriptors, cut_stalled, listen
from harness_worker.entrypoints.serving.request_heads import TimedHeads

_APP: Final = "api_gateway.app:create_app_from_env"
"""Loaded by name, because the worker package never imports the gateway."""

_DRAIN_SHARE: Final = 0.5

_log: Final = logging.getLogger("api_gateway")

KEEP_ALIVE_S: Final = 75
"""How long a connection may be idle after an answer, in seconds.

Longer than most clients' pools and the usual 60 s of proxies keep one, because a client that sends a request while the
gateway closes the connection cannot tell whether the request was accepted.
"""


def gateway(
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to serve.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65_535, help="The port; 0 picks a free one.")] = 8700,
    fd: Annotated[int | None, typer.Option(hidden=True, help="A listening socket that was inherited.")] = None,
) -> None:
    """Serve HTTP; needs HARNESS_DATABASE_URL (migrated) and HARNESS_REDIS_URL.

    Clients send Authorization: Bearer KEY, with a key made by `harness keys create`. With HARNESS_DEV_KEYLESS=1, those
    on the gateway's own machine need none. It serves plain HTTP: between machines, put a proxy with TLS in front of it.

    \b
        harness gateway --host 0.0.0.0
    """  # noqa: D301 - click reads the \b
    settings = load_settings()
    config = GatewayConfig(
        _APP,
        factory=True,
        http=TimedHeads,
        lifespan="on",  # else a gateway whose own tasks did not start would serve without them
        log_config=None,
        log_level=settings.log_level.lower(),
        access_log=False,
        use_colors=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(settings.grace_s * _DRAIN_SHARE)),
    )
    config.load()  # before listening, because it checks the gateway's own settings
    listener = listen(host, port) if fd is None else socket.socket(fileno=fd)
    _log.info("listens on %s port %d", *listener.getsockname()[:2])
    cut_stalled(listener)
    allow_all_descriptors()
    _end_well_on(signal.SIGTERM, signal.SIGINT)
    GatewayServer(config).run(sockets=[listener])
    exit_at_once()  # a thread may wait for an artifact store that hangs


class GatewayConfig(uvicorn.Config):
    """How uvicorn serves the gateway."""

    def load(self) -> None:
        """Load the application and make it."""
        with loading():
            super().load()


class GatewayServer(uvicorn.Server):
    """A server that ends at once if Ctrl-C is pressed while it stops."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal stops it."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; at once, in the next round of the loop, if it stops already: uvicorn would wait for connections."""
        super().handle_exit(sig, frame)
        if self.force_exit:
            self._loop.call_soon_threadsafe(exit_at_once)


def _end_well_on(*signals: signal.Signals) -> None:
    # uvicorn raises the signal once more after it has shut down: ending then is success, not death by that signal.
    for sig in signals:
        signal.signal(sig, lambda _signum, _frame: None)
