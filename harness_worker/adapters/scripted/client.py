"""A model that plays a script, chosen by ``model="scripted:FILE"``: the same step always gets the same reply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness_worker.adapters.scripted.lines import (
    ScriptFile,
    ScriptKey,
    ScriptLine,
    ScriptUsage,
    TextBlock,
    parse_script,
)
from harness_worker.core.budget import Usage
from harness_worker.core.registration.model_names import SCRIPTED
from harness_worker.errors import SHORTAGES, ModelError, ScriptExhausted, Stopped, TransientError
from harness_worker.ports import ModelReply, ModelRequest
from harness_worker.wire import DEFAULT_SCRIPT

SHOWN: Final = 10
"""How many scripts are listed in the error about a missing one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    stamp: tuple[int, int, int]
    script: ScriptFile


class ScriptedModel:
    """Implements ``ports.ModelClient``. Holds no turn's state; files are read when first used and when they change."""

    def __init__(self) -> None:
        self._loaded: dict[Path, _Loaded] = {}

    def complete(self, request: ModelRequest) -> ModelReply:
        """The line of the turn's script (``metadata.script``) for the request's kind and step.

        Raises:
            ModelError: The file cannot be read, the line is invalid, or it has an ``error``.
            ScriptExhausted: The script has no such step.
            Stopped: ``request.stop`` was set during the line's latency; contains what was said by then.
            TransientError: The line's ``latency_s`` is longer than the call may take, or the system could not open the
                file at this moment.
        """
        line = self._line(request)
        _play(line, request)
        if line.error is not None:
            raise ModelError(line.error)
        return _reply(line)

    def _line(self, request: ModelRequest) -> ScriptLine:
        file = request.model.removeprefix(SCRIPTED)
        script = request.metadata.get("script", DEFAULT_SCRIPT)
        played = self._script(file)
        line = played.find((request.kind, script, request.step))
        if line is None:
            lines = played.lines
            there = sum(kind is request.kind and name == script for kind, name, _ in lines)
            kind = f"{request.kind} {request.step} ({there} {request.kind}s)"
            raise ScriptExhausted(f"{file}: script {script!r} has no {kind}{_others(script, lines)}")
        return line

    def _script(self, file: str) -> ScriptFile:
        path = Path(file).absolute()
        try:
            stamp = _stamp(path)
            loaded = self._loaded.get(path)
            if loaded is None or loaded.stamp != stamp:
                loaded = _Loaded(stamp=stamp, script=parse_script(file, path.read_bytes()))
                self._loaded[path] = loaded
        except OSError as error:
            raised = TransientError if error.errno in SHORTAGES else ModelError
            raise raised(f"{file}: the script cannot be read: {error.strerror}") from error
        return loaded.script


def _others(script: str, lines: Iterable[ScriptKey]) -> str:
    """The scripts that exist, for the error about a missing one."""
    names = sorted({name for _, name, _ in lines})
    if script in names:
        return ""
    more = f" and {len(names) - SHOWN} more" if names[SHOWN:] else ""
    return f"; the file's scripts are {', '.join(map(repr, names[:SHOWN]))}{more}" if names else "; the file is empty"


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _play(line: ScriptLine, request: ModelRequest) -> None:
    """Wait for the line's latency; with ``chunk_chars``, say its text evenly over that time."""
    pieces = tuple(_pieces(line)) or ("",)
    gap_s, left_s, said = line.latency_s / len(pieces), request.timeout_s, ""
    for piece in pieces:
        if request.stop.wait(min(gap_s, left_s)):
            raise Stopped(said)
        if gap_s > left_s:
            raise TransientError(f"the model did not answer within {request.timeout_s:g} s")
        left_s, said = left_s - gap_s, said + piece
        if piece:
            request.on_text(piece)


def _pieces(line: ScriptLine) -> Iterator[str]:
    text = "".join(block.text for block in line.content if isinstance(block, TextBlock))
    chars = line.chunk_chars
    return (text[at : at + chars] for at in range(0, len(text), chars)) if chars else iter(())


def _reply(line: ScriptLine) -> ModelReply:
    asks = any(block.type == "tool_use" for block in line.content)
    return ModelReply(
        content=tuple(block.model_dump() for block in line.content),
        stop_reason=line.stop_reason or ("tool_use" if asks else "end_turn"),
        usage=_usage(line.usage),
    )


def _usage(usage: ScriptUsage) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cache_read_tokens=usage.cache_read_input_tokens or 0,
        cache_write_tokens=usage.cache_creation_input_tokens or 0,
    )
