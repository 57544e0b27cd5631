"""Reading artifacts back, and removing those that have expired."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.decisions import Artifact
from harness_worker.core.prompting.artifact_reading import HEADING_CHARS, MOST_CHARS, part_of, reader, refers, tools_for
from harness_worker.core.records import Message
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.core.run_context import RunContext
from harness_worker.errors import PermanentError, ToolError, ToolTransientError, TransientError
from harness_worker.testing.waiting import wait_until
from harness_worker.turn.artifacts import BATCH, EVERY_S, ArtifactFetch, ArtifactSweep
from harness_worker.wire import READ_ARTIFACT
from tests.unit.builders import NOW
from tests.unit.engine_kit import KeptBlobs, SetClock
from tests.unit.memory_store import MemoryArtifacts, MemoryTurnStore

TEXT = "0123456789"
CONTEXT = RunContext.for_tests(tenant="tenant")


def a_reader(text: str | None = TEXT, threshold_chars: int = 12_000) -> ToolSpec:
    """The tool, for a session that has an artifact with this text, or none."""
    return reader(lambda artifact_id, _: text if artifact_id == "art_1" else None, threshold_chars=threshold_chars)


def reads(tool: ToolSpec, **arguments: Any) -> object:  # noqa: ANN401 - any argument
    """The result of a call."""
    return tool.invoke(tool.bind(arguments).values, CONTEXT)


def an_agent(*tools: ToolSpec) -> AgentSpec:
    """An agent with these tools."""
    return AgentSpec(name="agent", model="told", system="", tools=tools)


def result(content: Any, kind: str = "tool_result") -> Message:  # noqa: ANN401 - any content
    """A message with one block."""
    return Message(role="user", content=[{"type": kind, "tool_use_id": "u", "content": content}])


def kept(*sessions: str) -> tuple[MemoryTurnStore, KeptBlobs]:
    """A journal and a store with one artifact for each session."""
    store, blobs = MemoryTurnStore(lambda: NOW), KeptBlobs()
    for number, session in enumerate(sessions, 1):
        url = blobs.put(f"turn/art_{number}", TEXT.encode())
        store.artifacts[f"art_{number}"] = Artifact(
            id=f"art_{number}",
            tenant="tenant",
            session_id=session,
            turn_id="turn",
            call_id="0.0",
            url=url,
            size_bytes=len(TEXT),
            summary=TEXT,
        )
    return store, blobs


def test_part_says_where_it_stands() -> None:
    """A heading comes before the requested characters; beyond the end there is nothing."""
    assert part_of(TEXT, 2, 3) == "[characters 2 to 5 of 10]\n234"
    assert part_of(TEXT, 8, 99) == "[characters 8 to 10 of 10]\n89"
    assert part_of(TEXT, 10, 1) == "[nothing: the artifact has 10 characters]"


def test_reader_is_a_read_that_may_be_repeated() -> None:
    """It changes nothing, and no part is too long to stay inline."""
    tool = a_reader("x" * 50_000)
    assert (tool.name, tool.effect, tool.retry_safe) == (READ_ARTIFACT, Effect.READ_ONLY, True)
    assert reads(tool, id="art_1", limit=99_999) == f"[characters 0 to {MOST_CHARS} of 50000]\n" + "x" * MOST_CHARS
    small = str(reads(a_reader("x" * 500, threshold_chars=300), id="art_1"))
    assert small.endswith("\n" + "x" * (300 - HEADING_CHARS))
    assert len(small) <= 300


def test_reader_refuses_what_the_session_does_not_have() -> None:
    """The model reads why there is no such artifact."""
    with pytest.raises(ToolError, match="this session has no artifact art_2"):
        reads(a_reader(), id="art_2")


def test_reader_is_offered_last_once_there_is_an_artifact() -> None:
    """It is offered once, to agents that have tools, and for the rest of the session."""
    look, tool = replace(a_reader(), name="look"), a_reader()
    assert tools_for(an_agent(look), tool, has_artifact=False) == (look,)
    assert tools_for(an_agent(look), tool, has_artifact=True) == (look, tool)
    assert tools_for(an_agent(tool), tool, has_artifact=True) == (tool,)
    assert tools_for(an_agent(), tool, has_artifact=True) == ()


def test_message_refers_to_an_artifact_if_a_result_is_one() -> None:
    """The same words anywhere else are just text."""
    shown = result("art_0f: the first characters")
    others = [result("done"), result("art_0f: x", kind="text"), Message(role="user", content="art_0f: x")]
    assert refers(shown)
    assert not any(map(refers, [*others, Message(role="assistant", content=shown.content)]))


def test_fetch_gives_a_session_its_own_artifacts_alone() -> None:
    """Nothing is found for another session or tenant, or if the bytes are gone."""
    store, blobs = kept("session", "other", "session")
    del blobs.kept["memory://turn/art_3"]
    fetch = ArtifactFetch(artifacts=MemoryArtifacts(store.artifacts), blobs=blobs)
    assert [fetch(f"art_{number}", CONTEXT) for number in (1, 2, 3, 4)] == [TEXT, None, None, None]
    assert fetch("art_1", replace(CONTEXT, tenant="other")) is None


def test_fetch_from_a_silent_store_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A passing fault is not reported as a missing artifact."""
    store, blobs = kept("session")

    def silent(_self: KeptBlobs, _url: str) -> bytes:
        raise TransientError("silent")

    monkeypatch.setattr(KeptBlobs, "get", silent)
    with pytest.raises(ToolTransientError):
        ArtifactFetch(artifacts=MemoryArtifacts(store.artifacts), blobs=blobs)("art_1", CONTEXT)


def test_sweep_removes_bytes_and_rows_once_a_minute() -> None:
    """It removes what has expired, once its time has come; a second sweep finds nothing."""
    store, blobs = kept("session", "other")
    clock = SetClock()
    sweep = ArtifactSweep(MemoryArtifacts(store.artifacts), blobs, clock)
    sweep()
    assert len(store.artifacts) == 2
    clock.wait(EVERY_S)
    sweep()
    wait_until(lambda: (store.artifacts, blobs.kept) == ({}, {}), "the sweep")
    assert sweep.sweep() == 0


def test_sweep_that_hangs_keeps_nobody_waiting() -> None:
    """The caller goes on at once, and no second sweep is started beside it."""
    store, blobs = kept("session")
    clock, free = SetClock(), threading.Event()
    asked: list[str] = []

    class Hangs(KeptBlobs):
        """A store that answers only when it is told to."""

        def delete(self, url: str) -> None:
            """See ``ports.BlobStore.delete``."""
            asked.append(url)
            free.wait(30)

    sweep = ArtifactSweep(MemoryArtifacts(store.artifacts), Hangs(blobs.kept), clock)
    for _ in range(3):
        clock.wait(EVERY_S)
        sweep()
    wait_until(lambda: asked, "the store to be asked")
    free.set()
    wait_until(lambda: store.artifacts == {}, "the sweep")
    assert len(asked) == 1


def test_sweep_gives_up_what_no_store_will_ever_remove() -> None:
    """Otherwise the oldest artifacts would keep the others from being removed."""
    store, blobs = kept("session")

    class Elsewhere(KeptBlobs):
        """A store that knows no such URL."""

        def delete(self, url: str) -> None:
            """See ``ports.BlobStore.delete``."""
            raise PermanentError(f"{url} is not below this store's URL")

    assert ArtifactSweep(MemoryArtifacts(store.artifacts), Elsewhere(blobs.kept), SetClock()).sweep() == 1
    assert store.artifacts == {}


def test_sweep_keeps_the_row_of_what_it_could_not_remove() -> None:
    """The next sweep tries again."""
    store, blobs = kept("session")
    blobs.broken = True
    sweep = ArtifactSweep(MemoryArtifacts(store.artifacts), blobs, SetClock())
    assert sweep.sweep() == 0
    assert list(store.artifacts) == ["art_1"]


def test_sweep_is_not_stopped_by_what_it_may_never_remove(caplog: pytest.LogCaptureFixture) -> None:
    """However many there are, all others are removed; the log has one line for each batch."""
    store, blobs = kept(*(f"session {number}" for number in range(BATCH + 1)))
    last = max(store.artifacts)

    class Guarded(KeptBlobs):
        """A store that removes only one of its objects."""

        def delete(self, url: str) -> None:
            """See ``ports.BlobStore.delete``."""
            if url != store.artifacts[last].url:
                raise TransientError("permission denied")

    assert ArtifactSweep(MemoryArtifacts(store.artifacts), Guarded(blobs.kept), SetClock()).sweep() == 1
    assert len(store.artifacts) == BATCH
    assert last not in store.artifacts
    assert [record.getMessage() for record in caplog.records] == [
        f"{BATCH} of {BATCH} expired artifacts not removed: permission denied"
    ]
