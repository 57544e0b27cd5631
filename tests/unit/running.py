"""A runner of calls over the ports that a test gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.core.timing import Timing
from harness_worker.ports import Artifacts, Clock, Dispatcher, Gate, TurnStore, ignore
from harness_worker.turn.deltas import Hint
from harness_worker.turn.hooking import HookCaller
from harness_worker.turn.patience import hand_in_patience
from harness_worker.turn.running.aftermath import Aftermath
from harness_worker.turn.running.call_runner import CallRunner
from harness_worker.turn.running.execution import Execution
from harness_worker.turn.running.locking import LockKeeper
from harness_worker.turn.running.reads import ReadRunner
from harness_worker.turn.running.tool_body import ToolBody
from harness_worker.turn.running.writes import WriteRunner


def a_runner(  # noqa: PLR0913 - the ports it runs calls over
    *,
    store: TurnStore,
    artifacts: Artifacts,
    gate: Gate,
    dispatcher: Dispatcher,
    body: ToolBody,
    keeper: LockKeeper,
    tools: Mapping[str, ToolSpec],
    agents: Mapping[str, AgentSpec],
    hooks: HookCaller,
    on_late: Callable[[], None],
    timing: Timing,
    clock: Clock,
    hint: Hint = ignore,
) -> CallRunner:
    """A runner over these ports."""
    patiently = hand_in_patience(clock)
    execution = Execution(tools=tools, body=body, keeper=keeper, gate=gate, hint=hint, clock=clock)
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
    return CallRunner(reads=reads, writes=writes)
