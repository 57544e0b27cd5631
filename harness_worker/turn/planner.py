"""From what a model said to planned calls: lookup, validation, waves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness_worker.core.gates import unknown_tool
from harness_worker.core.outcomes import DenialReason
from harness_worker.core.records import Call, Turn
from harness_worker.core.registration.tools import AgentSpec, Arguments, ToolSpec
from harness_worker.core.replay import fingerprint
from harness_worker.core.reply_commit import Said
from harness_worker.core.text import clean_json, clean_text, text_of
from harness_worker.core.waves import Want, plan_waves
from harness_worker.errors import ArgumentsInvalid
from harness_worker.ports import ModelReply
from harness_worker.wire import DEFAULT_TOOL_QUEUE, Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A tool_use block after lookup and validation; ``denied`` says why it will not run."""

    tool_use_id: str
    name: str
    arguments: Arguments
    spec: ToolSpec | None
    denied: str | None = None
    was_coerced: bool = False

    @property
    def want(self) -> Want:
        """How it may share a wave. A call that will not run is planned where it would have run."""
        if self.spec is None or not (self.spec.is_read or self.spec.delegation):
            return Want(keys=None)
        keys = frozenset[str]() if self.denied is not None else resource_keys(self.spec, self.arguments)
        return Want(keys=keys, is_delegated=self.spec.delegation is not None)

    @property
    def needs_approval(self) -> bool:
        """Whether a person has to agree before it runs."""
        return self.spec is not None and self.denied is None and self.spec.needs_approval(self.arguments)


def said_by(reply: ModelReply, turn: Turn, agent: AgentSpec) -> Said:
    """The reply with its calls planned as the turn's next step."""
    content: tuple[dict[str, Any], ...] = tuple(clean_json(block) for block in reply.content)
    blocks = [block for block in content if block.get("type") == "tool_use"]
    return Said(
        content=content,
        text=text_of(content),
        stop_reason=clean_text(reply.stop_reason),
        usage=reply.usage,
        calls=plan_calls(blocks, turn, agent),
    )


def plan_calls(blocks: Sequence[Mapping[str, Any]], turn: Turn, agent: AgentSpec) -> tuple[Call, ...]:
    """One planned call a tool_use block, in order, with its wave; those that may not run carry their denial."""
    judged = [_judge(block, agent) for block in blocks]
    parallel = agent.parallel and turn.parallel is not False
    waves = plan_waves([each.want for each in judged], parallel=parallel)
    return tuple(
        _call(each, turn, position, wave, asks_hooks=agent.asks_hooks)
        for position, (each, wave) in enumerate(zip(judged, waves, strict=True))
    )


def resource_keys(spec: ToolSpec, arguments: Arguments) -> frozenset[str] | None:
    """What a call touches, ``None`` if it must run alone; what ReplayControl judges is a resource of its own."""
    keys = spec.keys(arguments)
    if keys is None:
        return None
    return frozenset((*keys, fingerprint(spec.name, arguments))) if spec.idempotent else frozenset(keys)


def want_of(call: Call, agent: AgentSpec) -> Want:
    """How a planned read may share its wave; one that will not run takes no room."""
    spec = agent.tool(call.tool)
    if call.outcome is not None or spec is None:
        return Want(keys=frozenset())
    return Want(keys=resource_keys(spec, dict(call.arguments)))


def _judge(block: Mapping[str, Any], agent: AgentSpec) -> _Judged:
    name, given = str(block.get("name", "")), block.get("input")
    tool_use_id = str(block.get("id", ""))
    spec = agent.tool(name)
    arguments: Arguments = dict(given) if isinstance(given, Mapping) else {}  # pyright: ignore[reportUnknownArgumentType] - JSON
    if spec is None:
        denied = unknown_tool(name, agent.tool_names)
        return _Judged(tool_use_id=tool_use_id, name=name, arguments=arguments, spec=None, denied=denied)
    if not isinstance(given, Mapping):
        denied = f"arguments must be a JSON object, not {type(given).__name__}"
        return _Judged(tool_use_id=tool_use_id, name=name, arguments={}, spec=spec, denied=denied)
    try:
        bound = spec.bind(arguments)
    except ArgumentsInvalid as invalid:
        return _Judged(tool_use_id=tool_use_id, name=name, arguments=arguments, spec=spec, denied=str(invalid))
    return _Judged(tool_use_id=tool_use_id, name=name, arguments=bound.values, spec=spec, was_coerced=bound.was_coerced)


def _call(judged: _Judged, turn: Turn, position: int, wave: int, *, asks_hooks: bool) -> Call:
    spec, call_id = judged.spec, f"{turn.step}.{position}"
    call = Call(
        turn_id=turn.id,
        step=turn.step,
        position=position,
        tool_use_id=judged.tool_use_id,
        tool=judged.name,
        effect=None,
        arguments=judged.arguments,
        was_coerced=judged.was_coerced,
        wave=wave,
        retry_safe=False,
        timeout_s=0.0,
        queue=DEFAULT_TOOL_QUEUE,
        idempotency_key=f"{turn.id}:{call_id}",
        approval=Approval() if judged.needs_approval else None,
    )
    if judged.denied is not None:
        call = replace(call, outcome=call.denied(DenialReason.VALIDATION, judged.denied))
    if spec is None:
        return call
    return replace(
        call,
        effect=spec.effect,
        kind=spec.kind,
        delegation=spec.delegation,
        idempotent=spec.idempotent,
        retry_safe=spec.retry_safe,
        timeout_s=spec.timeout_s,
        queue=spec.queue,
        hooked=asks_hooks,
    )
