"""The broker and the canvas: messages that are lost, doubled and late, chords that never fire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from harness_worker.core.records import Call, Turn
from tests.unit.simulation.faults import Fault, Faults
from tests.unit.simulation.kernel import Kernel

STORM = 100
"""So many stop commands for one turn are a storm: enough has been seen."""


@dataclass(slots=True, kw_only=True)
class Chord:
    """A join of reads; ``left`` are those that have not reported yet."""

    left: set[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """Look at the turn."""

    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Run a call; then report to ``chord``, or go on with the ``rest`` of the chain."""

    turn_id: str
    call: Call
    chord: Chord | None = None
    rest: tuple[Call, ...] = ()


Message: TypeAlias = Advance | Run


@dataclass(slots=True, kw_only=True)
class Broker:
    """Implements ``ports.Dispatcher``.

    Args:
        kernel: Virtual time.
        faults: What goes wrong.
        deliver: Gives a message to a worker.
        broadcast: Tells every worker to stop what it does for a turn.
        pause: Called between two messages of one dispatch: the sender may die there.
    """

    kernel: Kernel
    faults: Faults
    deliver: Callable[[Message], None]
    broadcast: Callable[[str], None]
    pause: Callable[[], None]
    epoch: int = 0
    under_way: int = 0
    stops: int = 0

    def advance(self, turn_id: str, priority: str, *, begins: bool = False) -> bool:  # noqa: ARG002 - the port's
        """See ``ports.Dispatcher.advance``."""
        self.pause()
        self.send(Advance(turn_id=turn_id))
        return True

    def chord(self, turn: Turn, calls: Sequence[Call]) -> None:
        """See ``ports.Dispatcher.chord``."""
        join = Chord(left={call.call_id for call in calls})
        for call in calls:
            self.pause()
            self.send(Run(turn_id=turn.id, call=call, chord=join))

    def chain(self, turn: Turn, calls: Sequence[Call]) -> None:
        """See ``ports.Dispatcher.chain``."""
        self.pause()
        self.send(Run(turn_id=turn.id, call=calls[0], rest=tuple(calls[1:])))

    def judge(self, turn_id: str, judge: str) -> None:
        """See ``ports.Dispatcher.judge``: no agent here has judges."""

    def stop(self, turn_id: str) -> None:
        """See ``ports.Dispatcher.stop``."""
        self.pause()
        self.stops += 1
        if self.stops <= STORM and not self._strikes(Fault.LOSE_MESSAGE, 0.06):
            self.broadcast(turn_id)

    def go_on(self, message: Run) -> None:
        """What Celery does when a task has returned: join the chord, or send the next link."""
        if message.chord is not None:
            self._join(message.turn_id, message.call, message.chord)
        elif message.rest:
            self.send(replace(message, call=message.rest[0], rest=message.rest[1:]))
        else:
            self.send(Advance(turn_id=message.turn_id))

    def send(self, message: Message, delay_s: float | None = None) -> None:
        """Put a message in its queue; ``delay_s`` is for one that comes back."""
        if self._strikes(Fault.LOSE_MESSAGE, 0.06):
            return
        random = self.kernel.random
        late_s = random.uniform(0.001, 0.02) if delay_s is None else delay_s
        if self._strikes(Fault.DELAY_MESSAGE, 0.08):
            late_s += random.uniform(0.1, 15)
        self._arrive(message, late_s)
        if self._strikes(Fault.DOUBLE_MESSAGE, 0.1):
            self._arrive(message, late_s + random.choice([0.01, 0.5, 5, 20]) * random.random())

    def flush(self) -> None:
        """Lose every message under way and every chord."""
        self.epoch += 1

    def _arrive(self, message: Message, late_s: float) -> None:
        epoch = self.epoch
        self.under_way += 1

        def arrive() -> None:
            self.under_way -= 1
            if epoch == self.epoch:
                self.deliver(message)

        self.kernel.at(self.kernel.now + late_s, arrive)

    def _join(self, turn_id: str, call: Call, chord: Chord) -> None:
        if call.call_id not in chord.left or self._strikes(Fault.LOSE_CHORD, 0.1):
            return
        chord.left.remove(call.call_id)
        if not chord.left:
            self.send(Advance(turn_id=turn_id))

    def _strikes(self, kind: Fault, chance: float) -> bool:
        return self.faults.strikes(kind, chance, self.kernel.random, self.kernel.now)
