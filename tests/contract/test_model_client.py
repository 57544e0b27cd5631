"""The contract of a model client, tested on the scripted one."""

from __future__ import annotations

import json
import os
import resource
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harness_worker.adapters.scripted.client import ScriptedModel
from harness_worker.core.budget import Usage
from harness_worker.core.prompting.prompt import RequestKind
from harness_worker.errors import ModelError, ScriptExhausted, Stopped, TransientError
from harness_worker.ports import ModelClient, ModelReply, ModelRequest, StopSignal

TEXT = [{"type": "text", "text": "Hi"}]
ASK = [{"type": "text", "text": "Let me look."}, {"type": "tool_use", "id": "tu_1", "name": "get", "input": {"a": 1}}]


@dataclass(slots=True)
class RecordedSignal:
    """A signal that records waits, which take no time."""

    waits: list[float] = field(default_factory=list[float])
    told: bool = False

    def is_set(self) -> bool:
        """Whether the call must stop."""
        return self.told

    def wait(self, timeout: float | None = None) -> bool:
        """Record the wait."""
        self.waits.append(timeout or 0.0)
        return self.told


@pytest.fixture
def model() -> ModelClient:
    """The client under test."""
    return ScriptedModel()


Script = Callable[..., Path]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes a script of the given lines, each text or an object, and returns its file."""

    def write(*lines: str | Mapping[str, Any]) -> Path:
        file = tmp_path / "script.jsonl"
        file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        return file

    return write


def asked(
    file: Path | str,
    step: int = 0,
    script: str | None = None,
    timeout_s: float = 60.0,
    stop: StopSignal | None = None,
) -> ModelRequest:
    """A request for a step of a script."""
    metadata = {} if script is None else {"script": script}
    return ModelRequest(
        model=f"scripted:{file}",
        system="",
        tools=(),
        messages=(),
        step=step,
        metadata=metadata,
        timeout_s=timeout_s,
        stop=stop or threading.Event(),
    )


def test_model_plays_the_line_of_script_and_step(model: ModelClient, script: Script) -> None:
    """``metadata.script``, by default "default", and the number of committed assistant messages choose the line."""
    file = script(
        {"script": "default", "step": 1, "content": TEXT},
        {"script": "default", "step": 0, "content": ASK},
        "",
        {"script": "other", "step": 0, "content": [], "stop_reason": "max_tokens"},
    )
    assert model.complete(asked(file)) == ModelReply(content=tuple(ASK), stop_reason="tool_use", usage=Usage())
    assert model.complete(asked(file, step=1)).stop_reason == "end_turn"
    assert model.complete(asked(file, script="other")) == ModelReply(
        content=(), stop_reason="max_tokens", usage=Usage()
    )
    assert model.complete(asked(file)) == model.complete(asked(file))


def test_model_keeps_blocks_it_does_not_know(model: ModelClient, script: Script) -> None:
    """Blocks come back with every field they had."""
    blocks = [{"type": "thinking", "thinking": "…", "signature": "x"}, {**TEXT[0], "citations": None}]
    assert model.complete(asked(script({"step": 0, "content": blocks}))).content == tuple(blocks)


def test_model_counts_tokens_by_anthropics_names(model: ModelClient, script: Script) -> None:
    """The four classes of tokens are kept apart; unknown names and nulls count as nothing."""
    usage = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 4,
        "service_tier": "standard",
    }
    file = script(
        {"step": 0, "content": TEXT, "usage": usage}, {"step": 1, "content": TEXT, "usage": {"input_tokens": None}}
    )
    expected = Usage(input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4)
    assert model.complete(asked(file)).usage == expected
    assert model.complete(asked(file, step=1)).usage == Usage()


def test_null_in_a_line_counts_as_absent(model: ModelClient, script: Script) -> None:
    """This applies to every field."""
    absent = dict.fromkeys(("usage", "latency_s", "stop_reason", "chunk_chars", "error", "kind", "script"))
    assert model.complete(asked(script({"step": 0, "content": TEXT, **absent}))).usage == Usage()


def test_model_takes_the_time_its_line_says(model: ModelClient, script: Script) -> None:
    """``latency_s`` is that of the whole call; a call that takes longer than it may is worth another try."""
    file = script({"step": 0, "content": TEXT, "latency_s": 2.5}, {"step": 1, "error": "overloaded", "latency_s": 1})
    signal = RecordedSignal()
    model.complete(asked(file, stop=signal))
    with pytest.raises(ModelError, match=r"^overloaded$"):
        model.complete(asked(file, step=1, stop=signal))
    with pytest.raises(TransientError, match="within 2 s"):
        model.complete(asked(file, timeout_s=2.0, stop=signal))
    assert signal.waits == [2.5, 1.0, 2.0]


def test_model_gives_up_when_told(model: ModelClient, script: Script) -> None:
    """A call that is told to stop raises ``Stopped`` without any text."""
    file = script({"step": 0, "content": TEXT, "latency_s": 60})
    with pytest.raises(Stopped):
        model.complete(asked(file, stop=RecordedSignal(told=True)))


def test_model_says_its_text_in_chunks_over_its_latency(model: ModelClient, script: Script) -> None:
    """``chunk_chars`` splits the text into pieces reported at even intervals; without it none are reported."""
    line = {"content": [*ASK, *TEXT], "latency_s": 2.0}
    file = script({"step": 0, "chunk_chars": 4, **line}, {"step": 1, **line})
    signal, told = RecordedSignal(), list[str]()
    model.complete(replace(asked(file, stop=signal), on_text=told.append))
    assert told == ["Let ", "me l", "ook.", "Hi"]
    assert signal.waits == [0.5] * 4
    model.complete(replace(asked(file, step=1, stop=signal), on_text=told.append))
    assert len(told) == 4


def test_model_that_is_stopped_says_what_it_had_said(model: ModelClient, script: Script) -> None:
    """``Stopped`` carries the text reported so far."""
    file = script({"step": 0, "content": TEXT, "chunk_chars": 1, "latency_s": 1})
    signal = RecordedSignal()

    def hear(_text: str) -> None:
        signal.told = True

    with pytest.raises(Stopped) as caught:
        model.complete(replace(asked(file, stop=signal), on_text=hear))
    assert caught.value.said == "H"


def test_model_says_when_a_script_has_ended(model: ModelClient, script: Script) -> None:
    """Past the end, or for an unknown script, the error names file, script and step, and the scripts there are."""
    file = script({"step": 0, "content": TEXT})
    with pytest.raises(ScriptExhausted, match=r"script\.jsonl: script 'default' has no step 1 \(1 steps\)$"):
        model.complete(asked(file, step=1))
    with pytest.raises(ScriptExhausted, match=r"'x' has no step 0 \(0 steps\); the file's scripts are 'default'$"):
        model.complete(asked(file, script="x"))
    many = script(*({"script": f"s{number:02}", "step": 0, "content": TEXT} for number in range(12)))
    with pytest.raises(ScriptExhausted, match=r"scripts are 's00', .*'s09' and 2 more$"):
        model.complete(asked(many, script="x"))
    with pytest.raises(ScriptExhausted, match=r"\(0 steps\); the file is empty$"):
        model.complete(asked(script()))


def test_model_plays_no_lines_of_another_kind_as_steps(model: ModelClient, script: Script) -> None:
    """Lines for reflections and compactions do not serve as steps."""
    file = script({"step": 0, "kind": "reflection", "content": TEXT}, {"step": 0, "kind": "step", "content": ASK})
    assert model.complete(asked(file)).content == tuple(ASK)
    with pytest.raises(ScriptExhausted):
        model.complete(asked(script({"step": 0, "kind": "compaction", "content": TEXT})))


@pytest.mark.parametrize("kind", [RequestKind.REFLECTION, RequestKind.COMPACTION])
def test_model_plays_the_line_of_the_kind_that_is_asked_for(
    model: ModelClient, script: Script, kind: RequestKind
) -> None:
    """The line precedes the step, whatever lines of other kinds the script has there; the error names a missing one."""
    file = script(
        {"step": 1, "content": ASK},
        {"step": 1, "kind": "reflection", "content": [{"type": "text", "text": "reflection"}]},
        {"step": 1, "kind": "compaction", "content": [{"type": "text", "text": "compaction"}]},
    )
    assert model.complete(replace(asked(file, step=1), kind=kind)).content[0]["text"] == kind.value
    with pytest.raises(ScriptExhausted, match=rf"script 'default' has no {kind} 2 \(1 {kind}s\)"):
        model.complete(replace(asked(file, step=2), kind=kind))


def test_model_reads_a_script_again_when_it_changes(model: ModelClient, script: Script) -> None:
    """A file is read at its first use, and again when it changes, even if its size stays the same."""
    file = script({"step": 0, "content": [{"type": "text", "text": "one"}]})
    assert model.complete(asked(file)).content[0]["text"] == "one"
    script({"step": 0, "content": [{"type": "text", "text": "two"}]})
    os.utime(file, ns=(1, 1))
    assert model.complete(asked(file)).content[0]["text"] == "two"


def test_model_takes_a_relative_file_from_the_working_directory(
    model: ModelClient, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``scripted:script.jsonl`` is a file in the working directory of the process."""
    monkeypatch.chdir(script({"step": 0, "content": TEXT}).parent)
    assert model.complete(asked("script.jsonl")).content == tuple(TEXT)


def test_script_may_begin_with_a_byte_order_mark(model: ModelClient, script: Script) -> None:
    """Some editors write one; it is nothing of the first line."""
    file = script({"step": 0, "content": TEXT})
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert model.complete(asked(file)).content == tuple(TEXT)


@pytest.mark.parametrize(
    "line",
    [
        "{not json",
        "[]",
        '{"content": []}',
        '{"step": -1, "content": []}',
        '{"step": 1}',
        '{"step": 1, "content": "text"}',
        '{"step": 1, "content": [], "kind": "musing"}',
        '{"step": 1, "content": [{"type": "tool_use", "name": "x", "input": {}}]}',
        '{"step": 1, "content": [{"type": "tool_use", "id": "a", "name": "x", "input": []}]}',
        '{"step": 1, "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {"n": NaN}}]}',
        '{"step": 1, "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {"n": 1e999}}]}',
        '{"step": 1, "content": [{"type": "text"}]}',
        '{"step": 1, "content": [7]}',
        '{"step": 1, "content": [], "latency_s": -1}',
    ],
)
def test_model_names_the_line_that_is_malformed(model: ModelClient, script: Script, line: str) -> None:
    """The error names the file and the line that is not a reply; whoever asks for another line is not concerned."""
    file = script({"step": 0, "content": TEXT}, "", line)
    with pytest.raises(ModelError, match=r"script\.jsonl, line 3: "):
        model.complete(asked(file, step=1))
    assert model.complete(asked(file)).content == tuple(TEXT)


def test_model_tells_a_malformed_line_in_words_of_json(model: ModelClient, script: Script) -> None:
    """The author of a script wrote no tuple."""
    file = script({"step": 0, "content": "text"}, {"step": 1, "content": TEXT, "usage": 1})
    for step, told in enumerate(("content: Input should be a list$", "usage: Input should be an object$")):
        with pytest.raises(ModelError, match=told):
            model.complete(asked(file, step=step))


def test_model_refuses_to_choose_between_different_lines(model: ModelClient, script: Script) -> None:
    """The error names the line that says something else for the same step; a line written twice is the same."""
    first = {"step": 0, "content": TEXT}
    file = script(first, {"step": 1, "content": TEXT}, first, {"step": 1, "content": []})
    with pytest.raises(ModelError, match=r"script\.jsonl, line 4: script 'default' has step 1 already$"):
        model.complete(asked(file, step=1))
    assert model.complete(asked(file)).content == tuple(TEXT)


def test_model_says_when_its_script_cannot_be_read(model: ModelClient, tmp_path: Path) -> None:
    """A missing file ends the turn with an error that names the file."""
    with pytest.raises(ModelError, match=r"absent\.jsonl: the script cannot be read: No such file"):
        model.complete(asked(tmp_path / "absent.jsonl"))


def test_model_whose_script_gets_no_file_is_worth_another_try(model: ModelClient, script: Script) -> None:
    """The process is short of descriptors; nothing is wrong with the script."""
    file = script({"step": 0, "content": TEXT})
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, usual[1]))
    try:
        with pytest.raises(TransientError, match="the script cannot be read: Too many open files"):
            model.complete(asked(file))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert model.complete(asked(file)).content == tuple(TEXT)
