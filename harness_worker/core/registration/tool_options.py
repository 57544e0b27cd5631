"""The options of a tool registration: their allowed values and their defaults."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, Final, TypedDict, TypeGuard, cast

from harness_worker.core.registration.callables import check_takes
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.tools import ApprovalPolicy, LockPolicy, ToolKind
from harness_worker.errors import ConfigError
from harness_worker.wire import DEFAULT_TOOL_QUEUE, MAX_APPROVAL_S

MAX_TIMEOUT_S: Final = 45.0
"""The longest ``timeout_s`` of a tool unless a setting says otherwise, in seconds."""

TIMEOUT_CEILING_S: Final[ContextVar[float]] = ContextVar("timeout_ceiling_s")
"""The longest ``timeout_s`` that the settings of a worker allow, in seconds; set while it loads its application."""

TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

_CEILING_SET_BY: Final = (
    "the most is HARNESS_MAX_TOOL_TIMEOUT_S in a worker, elsewhere what Registry(max_tool_timeout_s=…) says"
)
_RULES: Final = ("resource_keys", "approval", "lock")
_QUEUE = re.compile(r"(?!turns\.)[A-Za-z0-9_.-]{1,64}")


class ToolKeywords(TypedDict, total=False):
    """The keyword arguments of ``tool`` and ``add_tool``; :class:`ToolOptions` says what they mean."""

    effect: Effect | None
    idempotent: bool
    retry_safe: bool | None
    resource_keys: Callable[[Any], Iterable[str]] | None
    timeout_s: float
    queue: str
    approval: ApprovalPolicy
    approval_timeout_s: float | None
    lock: LockPolicy
    kind: ToolKind | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """Checked options; the fields are those of ``ToolSpec``.

    Args:
        resource_keys: Gives the keys of validated arguments; ``None``: a read's key is its tool's name with its
            arguments.
    """

    effect: Effect | None = None
    idempotent: bool = False
    retry_safe: bool | None = None
    resource_keys: Callable[[Any], Iterable[str]] | None = None
    timeout_s: float = 10
    queue: str = DEFAULT_TOOL_QUEUE
    approval: ApprovalPolicy = "never"
    approval_timeout_s: float | None = None
    lock: LockPolicy = None
    kind: ToolKind | None = None

    @property
    def may_run_again(self) -> bool:
        """Whether a call may be run again after a crash: as declared, or by default if it is a read."""
        return self.effect is Effect.READ_ONLY if self.retry_safe is None else self.retry_safe


def tool_options(given: Mapping[str, Any], label: str, ceiling_s: float) -> ToolOptions:
    """Check a registration's options.

    Args:
        given: The keyword arguments, by name.
        label: The tool's name in error messages.
        ceiling_s: The longest ``timeout_s`` allowed, in seconds.

    Raises:
        ConfigError: An option is unknown or has a bad value; the message says what is allowed.
    """
    known = [field.name for field in fields(ToolOptions)]
    for name in given:
        if name not in known:
            there_are = ", ".join(("name", "description", *known))
            raise ConfigError(f"{label}: unknown option {name!r}; there are: {there_are}")
    options = ToolOptions(**dict[str, Any](given, effect=_effect(given.get("effect"), label)))
    for rule, mend in _rules(options, ceiling_s):
        if not rule:
            raise ConfigError(f"{label}: {mend}")
    for word in _RULES:
        if callable(rule := getattr(options, word)):
            check_takes(rule, f"{label}: {word}", "the arguments", may_yield=word == "resource_keys")
    return options


def _effect(effect: object, label: str) -> Effect | None:
    if effect is None or isinstance(effect, Effect):
        return effect
    if isinstance(effect, str) and effect in Effect.__members__:
        return Effect(effect)
    raise ConfigError(f"{label}: effect must be None or one of Effect.{', Effect.'.join(Effect)}, not {effect!r}")


def _rules(options: ToolOptions, ceiling_s: float) -> list[tuple[bool, str]]:
    o = cast("Any", options)
    return [
        (isinstance(o.idempotent, bool), f"idempotent must be True or False, not {o.idempotent!r}"),
        (
            o.retry_safe is None or isinstance(o.retry_safe, bool),
            f"retry_safe must be True, False or None, not {o.retry_safe!r}",
        ),
        (
            o.resource_keys is None or callable(o.resource_keys),
            "resource_keys must be a function of the arguments, such as lambda a: [f'order:{a.order_id}']",
        ),
        (
            is_number(o.timeout_s) and 0 < o.timeout_s <= ceiling_s,
            f"timeout_s must be seconds above 0 and at most {ceiling_s:g}, not {o.timeout_s!r}; {_CEILING_SET_BY}",
        ),
        (
            isinstance(o.queue, str) and _QUEUE.fullmatch(o.queue) is not None,
            f"queue must be 1 to 64 of A-Z a-z 0-9 _ . - and not start with 'turns.', not {o.queue!r}",
        ),
        (
            callable(o.approval) or o.approval in ("always", "never"),
            f"approval must be 'always', 'never' or a function of the arguments, not {o.approval!r}",
        ),
        (
            (asked_s := o.approval_timeout_s) is None or (is_number(asked_s) and 0 < asked_s <= MAX_APPROVAL_S),
            f"approval_timeout_s must be None or seconds above 0 and at most {MAX_APPROVAL_S:.0f}, not {asked_s!r}",
        ),
        (
            o.approval_timeout_s is None or o.approval != "never",
            "approval_timeout_s needs approval='always' or a function of the arguments",
        ),
        (
            o.lock is None or callable(o.lock) or (isinstance(o.lock, str) and bool(o.lock.strip())),
            f"lock must be None, a template such as 'order:{{order_id}}' or a function, not {o.lock!r}",
        ),
        (o.kind in (None, "retrieval", "web"), f"kind must be None, 'retrieval' or 'web', not {o.kind!r}"),
    ]


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite number that fits into a float, and not a bool."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
