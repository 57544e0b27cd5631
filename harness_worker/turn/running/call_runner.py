"""What a tool process does with one message: run a read if the gate allows it, any other call if the journal does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.core.timing import Timing
from harness_worker.errors import TransientError
from harness_worker.ports import Artifacts, Clock, Dispatcher, Gate, TurnStore, ignore
from harness_worker.turn.deltas import Hint
from harness_worker.turn.hooking import HookCaller
from harness_worker.turn.retries import hand_in_retries
from harness_worker.turn.running.aftermath import Aftermath
from harness_worker.turn.running.execution import Execution
from harness_worker.turn.running.job import Canvas, Job
from harness_worker.turn.running.locking import LockKeeper
from harness_worker.turn.running.reads import ReadRunner
from harness_worker.turn.running.tool_body import ToolBody
from harness_worker.turn.running.writes import WriteRunner

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRunner:
    """Runs calls; keeps no state of any call.

    Args:
        reads: Runs the calls whose arbiter is the gate.
        writes: Runs all others.
        on_failure: Called if a message could not be served, which is no failure of a body. Something that ran in this
            process earlier may have damaged the process.
    """

    reads: ReadRunner
    writes: WriteRunner
    on_failure: Callable[[], None]

    @property
    def tools(self) -> Collection[str]:
        """The names of the tools that this process serves."""
        return self.reads.execution.tools

    def run(self, job: Job) -> Canvas:
        """Serve one message. A call that could not be started is sent again by a look-in.

        Raises no ``TransientError``. If anything else is raised, the task fails, and the parent process reports the
        call as lost.
        """
        try:
            return self.reads.run(job) if job.is_read else self.writes.run(job)
        except TransientError as error:
            self.on_failure()
            log.warning("%s not started, a look-in sends it again: %s", job, error)
            return Canvas.CONTINUES if job.is_read else Canvas.STAYS
        except BaseException:
            self.on_failure()
            raise


def call_runner(  # noqa: PLR0913 - the ports it runs calls over
    *,
    store: TurnStore,
    artifacts: Artifacts,
    gate: Gate,
    dispatcher: Dispatcher,
    body: ToolBody,
    keeper: LockKeeper,
    tools: Mapping[str, ToolSpec],
    own: Mapping[str, ToolSpec],
    agents: Mapping[str, AgentSpec],
    hooks: HookCaller,
    on_late: Callable[[], None],
    timing: Timing,
    clock: Clock,
    hint: Hint = ignore,
    on_failure: Callable[[], None] = ignore,
) -> CallRunner:
    """A runner over these ports."""
    patiently = hand_in_retries(clock)
    execution = Execution(
        tools=tools, own=own, agents=agents, body=body, keeper=keeper, gate=gate, hint=hint, clock=clock
    )
    aftermath = Aftermath(
        agents=agents, hooks=hooks, artifacts=artifacts, remove=body.discard, on_late=on_late, patiently=patiently
    )
    reads = ReadRunner(
        gate=gate, store=store, execution=execution, aftermath=aftermath, patiently=patiently, clock=clock
    )
    writes = WriteRunner(
        store=store,
        dispatcher=dispatcher,
        execution=execution,
        aftermath=aftermath,
        patiently=patiently,
        timing=timing,
        clock=clock,
    )
    return CallRunner(reads=reads, writes=writes, on_failure=on_failure)
