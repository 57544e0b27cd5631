"""From a model's reply to planned calls: lookup, validation, waves; also after a hook or a person changed some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from harness_worker.core.gates import unknown_tool
from harness_worker.core.outcomes import DenialReason
from harness_worker.core.prompting.prompt import Prompt
from harness_worker.core.records import Call, CallStatus, Turn
from harness_worker.core.registration.tools import AgentSpec, Arguments, ToolSpec
from harness_worker.core.replay import fingerprint
from harness_worker.core.reply_commit import Said
from harness_worker.core.text import clean_json, clean_text, text_of
from harness_worker.core.waves import Want, plan_waves
from harness_worker.errors import ArgumentsInvalid
from harness_worker.ports import ModelReply
from harness_worker.wire import DEFAULT_TOOL_QUEUE, Approval


def said_by(reply: ModelReply, turn: Turn, agent: AgentSpec, prompt: Prompt) -> Said:
    """The reply to a prompt, with its calls planned as the turn's next step; citations are not looked for."""
    content: tuple[dict[str, Any], ...] = tuple(clean_json(block) for block in reply.content)
    blocks = [block for block in content if block.get("type") == "tool_use"]
    return Said(
        content=content,
        text=text_of(content),
        stop_reason=clean_text(reply.stop_reason),
        usage=reply.usage,
        calls=plan_calls(blocks, turn, agent),
        prompt=prompt,
    )


def plan_calls(blocks: Sequence[Mapping[str, Any]], turn: Turn, agent: AgentSpec) -> tuple[Call, ...]:
    """A planned call for each tool_use block, in order, with its wave; calls that may not run carry their denial."""
    calls = [_call(block, turn, position, agent) for position, block in enumerate(blocks)]
    parallel = agent.parallel and turn.parallel is not False
    waves = plan_waves([_want_of(call, agent) for call in calls], parallel=parallel)
    return tuple(replace(call, wave=wave) for call, wave in zip(calls, waves, strict=True))


def reads_apart(calls: Sequence[Call], agent: AgentSpec | None) -> frozenset[str]:
    """The reads that may not run beside earlier ones of their wave, because a hook or a person changed arguments.

    Args:
        calls: The calls of the turn as they will be run.
        agent: The agent whose tools say what a call touches. Without it, the reads of a wave with edited arguments run
            one by one.
    """
    reads = [call for call in calls if call.is_read and call.status is CallStatus.PLANNED]
    waves = {(call.step, call.wave) for call in reads if agent is not None or _is_edited(call)}
    parts = ([call for call in reads if (call.step, call.wave) == wave] for wave in waves)
    return frozenset(chain.from_iterable(_apart(part, agent) for part in parts))


def bound(call: Call, spec: ToolSpec, arguments: Arguments) -> Call:
    """The call with these arguments if they fit its tool; otherwise denied, with what is wrong with them.

    Whether the call needs approval depends on the arguments, so it is decided again for arguments from a hook.
    """
    try:
        fitting = spec.bind(arguments)
    except ArgumentsInvalid as invalid:
        return replace(call, arguments=arguments, outcome=call.denied(DenialReason.VALIDATION, str(invalid)))
    approval = Approval(timeout_s=spec.approval_timeout_s) if spec.needs_approval(fitting.values) else None
    return replace(call, arguments=fitting.values, was_coerced=fitting.was_coerced, approval=approval, outcome=None)


def _call(block: Mapping[str, Any], turn: Turn, position: int, agent: AgentSpec) -> Call:
    """The call of a tool_use block, after lookup and validation; if it will not run, its outcome is a denial."""
    name, given = str(block.get("name", "")), block.get("input")
    spec, call_id = agent.tool(name), f"{turn.step}.{position}"
    call = Call(
        turn_id=turn.id,
        step=turn.step,
        position=position,
        tool_use_id=str(block.get("id", "")),
        tool=name,
        effect=None,
        arguments=dict(given) if isinstance(given, Mapping) else {},  # pyright: ignore[reportUnknownArgumentType] - JSON
        wave=0,
        retry_safe=False,
        timeout_s=0.0,
        queue=DEFAULT_TOOL_QUEUE,
        idempotency_key=f"{turn.id}:{call_id}",
    )
    if spec is None:
        return replace(call, outcome=call.denied(DenialReason.VALIDATION, unknown_tool(name, agent.tool_names)))
    call = replace(
        call,
        effect=spec.effect,
        kind=spec.kind,
        delegation=spec.delegation,
        idempotent=spec.idempotent,
        retry_safe=spec.retry_safe,
        timeout_s=spec.timeout_s,
        queue=spec.queue,
        hooked=agent.asks_hooks,
    )
    if not isinstance(given, Mapping):
        denied = f"arguments must be a JSON object, not {type(given).__name__}"
        return replace(call, outcome=call.denied(DenialReason.VALIDATION, denied))
    return bound(call, spec, dict(call.arguments))


def _want_of(call: Call, agent: AgentSpec) -> Want:
    """How a planned call may share its wave; a call that will not run conflicts with none."""
    if not call.runs_beside:
        return Want(keys=None)
    spec = agent.tool(call.tool)
    if spec is None or call.outcome is not None:
        return Want(keys=frozenset(), is_delegated=call.is_delegated)
    return Want(keys=_resource_keys(spec, dict(call.arguments)), is_delegated=call.is_delegated)


def _resource_keys(spec: ToolSpec, arguments: Arguments) -> frozenset[str] | None:
    """What a call touches; ``None`` if it runs alone. Equal calls of an idempotent tool share a resource."""
    keys = spec.keys(arguments)
    if keys is None:
        return None
    return frozenset((*keys, fingerprint(spec.name, arguments))) if spec.idempotent else frozenset(keys)


def _is_edited(call: Call) -> bool:
    return call.approval is not None and call.approval.arguments is not None


def _apart(wave: Sequence[Call], agent: AgentSpec | None) -> Iterator[str]:
    if agent is None:
        return (call.call_id for call in wave)
    parts = plan_waves([_want_of(call, agent) for call in wave], parallel=True)
    return (call.call_id for call, part in zip(wave, parts, strict=True) if part > 0)
