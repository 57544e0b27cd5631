"""Running a tool's body within its time, and turning whatever happens into an outcome. Never raises."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from tenacity import Retrying, retry_if_exception_type, stop_before_delay, wait_random_exponential

from harness_worker.core.outcomes import ToolArtifactReference, ToolExecutionResult, ToolOutcome, shortened
from harness_worker.core.registration.author_code import words_of
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.core.run_context import DeadlineToken, RunContext
from harness_worker.core.text import cut_text
from harness_worker.core.tool_results import describe, outcome_of_exception, outcome_of_return
from harness_worker.errors import ArgumentsOutdated, HarnessError, ToolError, ToolOutcomeUnknown, ToolTransientError
from harness_worker.ports import BlobStore, Clock, DeadlineReached, SoftDeadline
from harness_worker.threads.timeouts import within
from harness_worker.turn.running.forked_processes import in_this_process
from harness_worker.turn.tickets import Ticket
from harness_worker.wire import artifact_key

log = logging.getLogger(__name__)

SUMMARY_CHARS = 200
MAX_BACKOFF_S = 2.0
LONGEST_PUT_S = 5.0
"""How long a blob store may take: a call that did its work must not end in doubt because of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBody:
    """Executes one call.

    Args:
        soft_deadline: Stops the body when its time is over.
        blobs: Stores outputs that are too long for the context.
        clock: This process's monotonic time.
        new_artifact_id: Makes ``art_<hex>``.
        threshold_chars: The longest output that stays inline, and the longest failure, in characters.
    """

    soft_deadline: SoftDeadline
    blobs: BlobStore
    clock: Clock
    new_artifact_id: Callable[[], str]
    threshold_chars: int

    def run(
        self,
        spec: ToolSpec,
        ticket: Ticket,
        *,
        attempt: int,
        remaining_s: float,
        is_revoked: Callable[[], bool],
        fence: int | None,
    ) -> ToolOutcome | None:
        """Run the call and return its outcome; ``None`` if its time ended first or it was stopped."""
        started = self.clock.monotonic()
        context = self._context(ticket, attempt, at_s=started + remaining_s, fence=fence)
        tries = Tries(partial(spec.invoke, dict(ticket.arguments), context), was_lost=attempt > 1)
        try:
            with self.soft_deadline(remaining_s, is_revoked):
                value = self._retrying(context.deadline)(tries) if spec.retry_safe else tries()
            outcome = None if context.deadline.expired else self._returned(ticket, value, started)
        except DeadlineReached:
            return None
        except BaseException as error:  # noqa: BLE001 - a tool may raise anything; it is an outcome, never a raise
            doubt = None if spec.is_read else tries.doubt_left_by(error)
            failed = outcome_of_exception(
                ticket.call_id, ticket.tool, doubt or error, elapsed_ms=self._since_ms(started), is_read=spec.is_read
            )
            outcome = None if context.deadline.expired else failed
        return None if outcome is None else self._kept(outcome, ticket, context.deadline)

    def _returned(self, ticket: Ticket, value: object, started: float) -> ToolOutcome:
        return in_this_process(
            outcome_of_return,
            ticket.call_id,
            ticket.tool,
            value,
            elapsed_ms=self._since_ms(started),
            was_coerced=ticket.was_coerced,
        )

    def _retrying(self, deadline: DeadlineToken) -> Retrying:
        """Retries as long as the next try would start in time, so that a known failure does not become a timeout."""
        return Retrying(
            retry=retry_if_exception_type(ToolTransientError),
            wait=wait_random_exponential(multiplier=0.05, max=MAX_BACKOFF_S),
            stop=stop_before_delay(deadline.remaining_s()),
            sleep=lambda seconds: self.clock.wait(min(seconds, deadline.remaining_s())),
            reraise=True,
        )

    def _context(self, ticket: Ticket, attempt: int, *, at_s: float, fence: int | None) -> RunContext:
        return RunContext(
            turn_id=ticket.turn_id,
            call_id=ticket.call_id,
            session_id=ticket.session_id,
            tenant=ticket.tenant,
            attempt=attempt,
            idempotency_key=ticket.idempotency_key,
            deadline=DeadlineToken(at_s=at_s, clock=self.clock.monotonic),
            fence=fence,
            agent=ticket.agent,
            metadata=dict(ticket.metadata),
        )

    def _since_ms(self, started: float) -> float:
        return round((self.clock.monotonic() - started) * 1_000, 3)

    def _kept(self, outcome: ToolOutcome, ticket: Ticket, deadline: DeadlineToken) -> ToolOutcome:
        """The outcome, with a long output stored as an artifact within the call's time, or a long failure cut."""
        if not isinstance(outcome, ToolExecutionResult) or len(outcome.output) <= self.threshold_chars:
            return shortened(outcome, self.threshold_chars)
        artifact_id = self.new_artifact_id()
        try:
            data = outcome.output.encode()
            put = partial(self.blobs.put, artifact_key(ticket.turn_id, artifact_id), data)
            url = within(min(deadline.remaining_s(), LONGEST_PUT_S), put, unwanted=self._remove)
        except Exception as error:  # noqa: BLE001 - never raises: the call has done its work
            log.warning("output of %s in turn %s not stored, cut instead: %s", ticket.tool, ticket.turn_id, error)
            why = ", and the artifact store did not take them"
            return replace(outcome, output=cut_text(outcome.output, self.threshold_chars, why))
        return ToolArtifactReference(
            call_id=outcome.call_id,
            tool_name=outcome.tool_name,
            artifact_id=artifact_id,
            summary=outcome.output[:SUMMARY_CHARS],
            url=url,
            size_bytes=len(data),
            elapsed_ms=outcome.elapsed_ms,
            was_coerced=outcome.was_coerced,
        )

    def discard(self, stored: ToolArtifactReference) -> None:
        """Remove the bytes of an output that no call will refer to. Never raises, and has the same time as storing."""
        try:
            within(LONGEST_PUT_S, partial(self._remove, stored.url))
        except Exception as error:  # noqa: BLE001 - never raises: the call is over
            log.warning("bytes at %s, to which no call refers, may be left over: %s", stored.url, error)

    def _remove(self, url: str) -> None:
        """Remove stored bytes that no call refers to; nothing else would ever do so."""
        try:
            self.blobs.delete(url)
        except HarnessError as error:
            log.warning("bytes at %s not removed, though no call refers to them: %s", url, error)


class Tries:
    """The body of one call, called repeatedly; remembers why nobody may know whether it has had its effect.

    Args:
        body: The body.
        was_lost: Whether the process of an earlier attempt was lost.
    """

    def __init__(self, body: Callable[[], object], *, was_lost: bool = False) -> None:
        self._body = body
        self._was_lost = was_lost
        self._is_begun = False
        self._raised: BaseException | None = None
        self._doubt: ToolOutcomeUnknown | None = None

    def __call__(self) -> object:
        """Return or raise what the body does."""
        try:
            return in_this_process(self._run)
        except ToolOutcomeUnknown as doubt:
            self._doubt = doubt
            raise
        finally:
            with suppress(Exception):  # of a stream that the tool closed or replaced
                sys.stdout.flush()

    def _run(self) -> object:
        """The same, and remember what the body itself raised: no other error says anything about what it did."""
        self._is_begun = True
        try:
            return self._body()
        except BaseException as error:
            self._raised = error
            raise

    def doubt_left_by(self, last: BaseException) -> ToolOutcomeUnknown | None:
        """The doubt about what the body did that an error leaves, if any.

        What the tool answers settles what earlier tries did. Once the body has begun, an error that it did not raise
        itself, such as a lack of memory for the result's JSON, may follow anything that the body did.
        """
        if self._is_begun and last is not self._raised:
            return ToolOutcomeUnknown(f"its result was lost: {describe(last)}")
        is_answer = isinstance(last, ToolError) and not isinstance(last, ToolTransientError)
        if is_answer or isinstance(last, DeadlineReached | ArgumentsOutdated):  # the latter two are judged elsewhere
            return None
        if self._doubt is None and self._was_lost:
            said = words_of(last) if isinstance(last, ToolTransientError) else describe(last)
            return ToolOutcomeUnknown(f"its process was lost, and then it failed: {said}")
        return self._doubt
