"""Lua scripts whose Python signature is their contract.

``@lua("admit")`` on a typed signature makes a :class:`Script` of ``scripts/admit.lua``. The first parameter is the
key; every other one is a Lua local of the same name, converted by its annotation: ``str``, ``int``, ``bool``, or, last,
``Sequence[D]`` of a dataclass ``D`` (a Lua list of tables with the fields of ``D``). Nothing else encodes arguments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.resources import files
from inspect import signature
from typing import Any, Generic, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from harness_worker.errors import InvariantError

P = ParamSpec("P")
R = TypeVar("R")
Encoded = str | int

_FROM_ARGV = {str: "{}", int: "tonumber({})", bool: "({} == '1')"}
_PREAMBLE = "_gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation(Generic[R]):
    """A script with its arguments, ready to send; ``R`` is the type of its reply."""

    script: Script[..., R]
    key: str
    argv: tuple[Encoded, ...]

    @property
    def by_name(self) -> tuple[Encoded, ...]:
        """The command for a Redis that already has the script."""
        return ("EVALSHA", self.script.sha, 1, self.key, *self.argv)

    @property
    def in_full(self) -> tuple[Encoded, ...]:
        """The command that includes the script's text."""
        return ("EVAL", self.script.text, 1, self.key, *self.argv)


class Script(Generic[P, R]):
    """A Lua script and the signature that is its contract.

    Args:
        name: The file ``scripts/{name}.lua``.
        contract: A function whose parameters are the script's and whose return type is its reply's.
        preamble: The file of functions that it shares with other scripts.
    """

    def __init__(self, name: str, contract: Callable[P, R], preamble: str = _PREAMBLE) -> None:
        self.name = name
        self.preamble = preamble
        self._signature = signature(contract)
        hints = get_type_hints(contract)
        self._columns = [(parameter, hints[parameter]) for parameter in self._signature.parameters][1:]
        self._encoders = [_encoder(hint) for _, hint in self._columns]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Invocation[R]:
        """Bind arguments; nothing is sent yet."""
        key, *values = self._signature.bind(*args, **kwargs).args if kwargs else args
        argv = [cell for encode, value in zip(self._encoders, values, strict=True) for cell in encode(value)]
        return Invocation(script=self, key=str(key), argv=tuple(argv))

    @cached_property
    def text(self) -> str:
        """What Redis runs: the signature's locals, the shared functions, the script's file."""
        lines = ["local key = KEYS[1]"]
        lines += [_declare(name, hint, index) for index, (name, hint) in enumerate(self._columns, start=1)]
        return "\n".join([*lines, _source(self.preamble), _source(self.name)])

    @cached_property
    def sha(self) -> str:
        """The name by which Redis knows the script."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def lua(name: str, preamble: str = _PREAMBLE) -> Callable[[Callable[P, R]], Script[P, R]]:
    """Make the decorated signature the contract of ``scripts/{name}.lua``."""
    return lambda contract: Script(name, contract, preamble)


def _source(name: str) -> str:
    return files("harness_worker.adapters.redis").joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8")


def _declare(name: str, hint: Any, index: int) -> str:  # noqa: ANN401 - any annotation
    if hint in _FROM_ARGV:
        return f"local {name} = {_FROM_ARGV[hint].format(f'ARGV[{index}]')}"
    if get_origin(hint) is Sequence:
        return _declare_rows(name, get_args(hint)[0], index)
    raise InvariantError(f"a Lua script cannot take {name}: {hint}")


def _declare_rows(name: str, row: type[Any], index: int) -> str:
    hints = get_type_hints(row)
    names = [field.name for field in fields(row)]
    cells = [f"{field} = {_FROM_ARGV[hints[field]].format(f'ARGV[i + {i}]')}" for i, field in enumerate(names)]
    fill = f"{name}[#{name} + 1] = {{{', '.join(cells)}}}"
    return f"local {name} = {{}}\nfor i = {index}, #ARGV, {len(names)} do {fill} end"


def _encoder(hint: Any) -> Callable[[Any], Iterable[Encoded]]:  # noqa: ANN401 - any annotation
    if get_origin(hint) is Sequence:
        names = [field.name for field in fields(get_args(hint)[0])]
        return lambda rows: [getattr(row, name) for row in rows for name in names]
    return _flag if hint is bool else _scalar


def _scalar(value: Encoded) -> tuple[Encoded]:
    return (value,)


def _flag(value: bool) -> tuple[Encoded]:
    return (int(value),)
