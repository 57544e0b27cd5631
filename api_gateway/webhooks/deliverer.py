"""Delivers webhooks: one task a process, which starts another one for each attempt.

Live events say which turns may have something to deliver. They may be lost, so the table is polled as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.concurrency.lasting import lasting
from api_gateway.concurrency.patience import answered_within
from api_gateway.config import Settings
from api_gateway.logs import in_a_line
from api_gateway.webhooks.backlog import Backlog
from api_gateway.webhooks.outbox import Claim, Outbox, WebhookEvent
from api_gateway.webhooks.payload import webhook_body
from api_gateway.webhooks.rules import DeliveryOutcome, Lane, ReceiverAnswer, Verdict, full_of, verdict_of
from api_gateway.webhooks.sender import Sender
from api_gateway.webhooks.signing import Signer, message_id
from harness_worker.credentials import webhook_secrets

POLL_S: Final = 2.0
"""How often the table is polled for due deliveries: live events may be lost, and gateways may die."""

POLLING_SHARE: Final = 0.05
"""The share of the time that polls may take: if very many turns wait, the table is polled less often."""

LONGEST_PAUSE_S: Final = 20.0
"""The longest time between two polls: one that took long, as when the database hangs, must not delay all retries."""

FOUND_AT_ONCE: Final = 1_000
ASKED_AT_ONCE: Final = 200
MOST_POKED: Final = 10_000
"""The most turns to be checked that are remembered; the next poll finds the others."""

READ_S: Final = 5.0
"""How long reading a claimed event may take: the attempt must end before its lease does."""

DRAIN_S: Final = 3.0
"""How long attempts may go on when the process stops; then they are cancelled, and made again when their leases end."""

_log = logging.getLogger(__name__)


class Deliverer:
    """Delivers what is due while its context lasts; never raises.

    Args:
        outbox: The rows of webhooks.
        signer: Signs requests.
        sender: Sends them.

    Attributes:
        outcomes: The number of attempts by outcome.
    """

    def __init__(self, outbox: Outbox, signer: Signer, sender: Sender) -> None:
        self._outbox = outbox
        self._signer = signer
        self._sender = sender
        self._poked: dict[str, None] = {}
        self._backlog = Backlog()
        self._under_way: dict[asyncio.Task[None], Lane] = {}
        self._wake = asyncio.Event()
        self._poll_at = 0.0
        self._stopping = False
        self._is_cut_off = False
        self.outcomes: Counter[DeliveryOutcome] = Counter()

    @property
    def _busy(self) -> Counter[Lane]:
        """The attempts under way; counted anew each time, so that none keeps its place over an error at its end."""
        return Counter(lane for task, lane in self._under_way.items() if not task.done())

    def poke(self, turn_id: str) -> None:
        """Check soon whether this turn has something to deliver."""
        if len(self._poked) < MOST_POKED:
            self._poked[turn_id] = None
            self._wake.set()

    def stop(self) -> None:
        """Start no further attempt."""
        self._stopping = True
        self._wake.set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Deliver what is due while the context lasts; no attempt is under way after it."""
        try:
            async with lasting(self._run, name="webhooks", drain_s=DRAIN_S):
                try:
                    yield
                finally:
                    self.stop()
        finally:
            await _end(self._under_way)
            await self._sender.close()

    async def _run(self) -> None:
        while not self._stopping:
            await self._round()

    async def _round(self) -> None:
        self._wake.clear()
        clock = asyncio.get_running_loop().time
        began = clock()
        if began >= self._poll_at:
            await self._try(self._poll)
            took = 0.0 if self._is_cut_off else clock() - began  # a failed poll does not show how many wait
            self._poll_at = clock() + min(max(POLL_S, took / POLLING_SHARE), LONGEST_PAUSE_S)
        await self._try(self._start_poked)
        with suppress(TimeoutError):  # left by an error, ``asyncio.timeout`` might cancel this task later
            await answered_within(max(0.0, self._poll_at - clock()), self._wake.wait())

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - never raises: the rows stay, and the next poll finds them
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        log = _log.debug if self._is_cut_off else _log.warning
        self._is_cut_off = True
        try:
            log("webhooks wait: %s", in_a_line(error))
        except Exception:  # noqa: BLE001 - memory may still be short, even for a ``suppress``
            return

    async def _poll(self) -> None:
        """Queue all that is due, except for hosts and tenants whose places are taken once queued deliveries start."""
        await self._start_queued()
        found = await self._outbox.due(FOUND_AT_ONCE, full_of(self._busy))
        self._is_cut_off = False
        self._backlog.add(found)

    async def _start_poked(self) -> None:
        """Start what may start, including deliveries of turns that were poked; the rest of these is queued."""
        await self._start_queued()
        while self._poked and not self._stopping:
            turn_ids = list(islice(self._poked, ASKED_AT_ONCE))
            for turn_id in turn_ids:  # before the query: what happens meanwhile pokes them again
                del self._poked[turn_id]
            self._backlog.add(await self._outbox.due_of(turn_ids))
            await self._start_queued()

    async def _start_queued(self) -> None:
        while not self._stopping and (turn_ids := self._backlog.take(self._busy)):
            for claim in await self._outbox.claim(turn_ids):
                self._start(claim)

    def _start(self, claim: Claim) -> None:
        task = asyncio.create_task(self._deliver(claim), name=f"webhook {claim.turn_id}")
        self._under_way[task] = claim.lane
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        self._wake.set()

    async def _deliver(self, claim: Claim) -> None:
        try:
            event = await answered_within(READ_S, self._outbox.event(claim))
            if event is not None:
                await self._attempt(claim, event)
        except Exception as error:  # noqa: BLE001 - never raises: the lease ends, and the event is delivered again
            _log.warning("the webhook of turn %s will be delivered again later: %s", claim.turn_id, in_a_line(error))

    async def _attempt(self, claim: Claim, event: WebhookEvent) -> None:
        body = webhook_body(event.kind, event.at, event.turn)
        headers = self._signer.headers(claim.lane.tenant, message_id(claim.turn_id, claim.seq), event.now, body)
        answer = await self._sender.post(claim.url, headers, body)
        verdict = verdict_of(answer, claim.failures, claim.turn_id)
        if await self._outbox.record(claim, event, answer, verdict):
            self._count(claim, answer, verdict)
        if not event.is_last:  # the lease kept what happened meanwhile from being due
            self.poke(claim.turn_id)

    def _count(self, claim: Claim, answer: ReceiverAnswer, verdict: Verdict) -> None:
        self.outcomes[verdict.outcome] += 1
        if verdict.outcome is DeliveryOutcome.GIVEN_UP:
            what = (claim.turn_id, claim.lane.host, claim.attempt, answer.error)
            _log.warning("the webhook of turn %s to %s is given up after %d attempts: %s", *what)


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait for tasks for a short time, then cancel them."""
    if not (waited := set(tasks)):
        return
    _, late = await asyncio.wait(waited, timeout=DRAIN_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)


def make_deliverer(engine: AsyncEngine, settings: Settings) -> Deliverer | None:
    """The deliverer of a process; ``None`` if there is no secret to sign with."""
    if settings.webhook_secret is None:
        return None
    signer = Signer(webhook_secrets(settings.webhook_secret.get_secret_value()))
    return Deliverer(Outbox(engine), signer, Sender(allow_private=settings.webhook_private))
