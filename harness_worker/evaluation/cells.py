"""A sweep's cells, one for each case, agent and repeat, and the idempotency keys by which none is asked twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness_worker.core.canonical import sha256_of
from harness_worker.evaluation.cases import Case
from harness_worker.wire import JsonObject, Priority

DIGEST_CHARS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One case asked of one agent, once.

    Args:
        sweep: The sweep's name.
        agent: The agent that is asked.
        case: The case.
        repeat: The number of the repeat, from 1.
        retry: How many times it was asked before, in vain: each time with turns of its own.
    """

    sweep: str
    agent: str
    case: Case
    repeat: int
    retry: int = 0

    @property
    def name(self) -> str:
        """A name for people: the case, the agent, and the number of the repeat."""
        return f"{self.case.id} of {self.agent}, repeat {self.repeat}"

    @property
    def asked(self) -> str:
        """A digest of the request: that of the same cell of a sweep, unless its case was edited or it is retried."""
        case, again = self.case, [self.retry] if self.retry else []
        return _digest([self.sweep, self.agent, case.id, self.repeat, case.input, case.metadata, case.budget, *again])

    def expected(self, check: str | None) -> str:
        """A digest of what the answer is compared with, including the name of a check."""
        return _digest([self.case.expect.model_dump(mode="json"), self.case.target, check])

    @property
    def session_id(self) -> str:
        """The session of its turns, which no other cell shares."""
        return f"eval-{self.asked}"

    def key(self, number: int) -> str:
        """The idempotency key of its turn ``number``, counted from 0."""
        return f"eval-{self.asked}-{number}"

    def body(self, number: int) -> JsonObject:
        """The request for its turn ``number``, counted from 0."""
        names = {"sweep": self.sweep, "case": self.case.id, "repeat": str(self.repeat)}
        return {
            "agent": self.agent,
            "input": self.case.input[number],
            "session_id": self.session_id,
            "metadata": {**self.case.metadata, **names},
            "budget": self.case.budget,
            "priority": Priority.BATCH.value,
        }


def cells_of(sweep: str, agents: Sequence[str], cases: Sequence[Case], repeats: int) -> Iterator[Cell]:
    """Every cell of a sweep: all cases once, then all again; for each case, all agents in turn."""
    for repeat in range(1, repeats + 1):
        for case in cases:
            for agent in agents:
                yield Cell(sweep=sweep, agent=agent, case=case, repeat=repeat)


def _digest(value: object) -> str:
    return sha256_of(value)[:DIGEST_CHARS]
