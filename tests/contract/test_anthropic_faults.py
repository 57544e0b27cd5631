"""Claude behind the model port when it fails, falls silent or is told to stop, over real HTTP."""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
import traceback
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from harness_worker.adapters.anthropic import silence
from harness_worker.adapters.anthropic.client import AnthropicModel
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.errors import ModelError, PromptTooLong, Stopped, TransientError
from harness_worker.ports import ModelReply
from harness_worker.testing.messages_replies import Answer, Ending, Refusal, Reply, Silence, said, tool_use
from harness_worker.testing.messages_stub import MessagesStub
from harness_worker.testing.waiting import wait_until
from tests.contract.anthropic_kit import KEY, asking
from tests.environments import PASSWORD, UNUSABLE

TEXT = "One two three four five."
SOON_S = 1.0
TRIES = 3
"""How often something is tried that must be done within ``SOON_S``: the machine may stall for a moment."""
EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"model": "claude-sonnet-5-5", "usage": {"input_tokens": 1}}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]


@contextmanager
def serving(body: bytes | Iterable[bytes], *, status: int = 200, kind: str = "text/event-stream") -> Generator[str]:
    """Run a provider that answers every request with this body, by default as a stream, and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))  # what is left unread would reset the connection
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()
            with suppress(ConnectionError):
                for piece in [body] if isinstance(body, bytes) else body:
                    self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (408, "timeout_error"),
        (409, "conflict_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_refusal_that_may_pass_is_transient(stub: MessagesStub, model: AnthropicModel, status: int, kind: str) -> None:
    """One request is sent for each call; the turn's own backoff retries, after the wait that the provider asks for."""
    stub.answer(Refusal(status=status, kind=kind, message="Later, please", headers={"retry-after": "7"}))
    with pytest.raises(TransientError, match=f"answered {status} {kind}: Later, please") as caught:
        model.complete(asking())
    assert caught.value.retry_after_s == 7.0
    assert len(stub.asked) == 1


@pytest.mark.parametrize("wish", ["", "soon", "-1", "inf", "nan", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_retry_after_that_is_no_time_to_come_is_ignored(stub: MessagesStub, model: AnthropicModel, wish: str) -> None:
    """If the header makes no sense, the usual backoff applies."""
    stub.answer(Refusal(status=429, kind="rate_limit_error", message="x", headers={"retry-after": wish}))
    with pytest.raises(TransientError) as caught:
        model.complete(asking())
    assert caught.value.retry_after_s is None


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
    ],
)
def test_retry_after_may_be_milliseconds(
    stub: MessagesStub, model: AnthropicModel, headers: dict[str, str], pause_s: float
) -> None:
    """They are read as the provider's own library does: milliseconds take precedence over seconds."""
    stub.answer(Refusal(status=429, kind="rate_limit_error", message="x", headers=headers))
    with pytest.raises(TransientError) as caught:
        model.complete(asking())
    assert caught.value.retry_after_s == pause_s


def test_retry_after_may_be_a_date(stub: MessagesStub, model: AnthropicModel) -> None:
    """A date in HTTP's format stands for the time until then."""
    in_an_hour = {"retry-after": formatdate(time.time() + 3_600, usegmt=True)}
    stub.answer(Refusal(status=429, kind="rate_limit_error", message="x", headers=in_an_hour))
    with pytest.raises(TransientError) as caught:
        model.complete(asking())
    assert 3_000.0 <= (caught.value.retry_after_s or 0.0) <= 3_600.0


def test_retry_after_of_no_zone_is_utc(
    stub: MessagesStub, model: AnthropicModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read as UTC whatever the machine's time zone is."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        in_an_hour = {"retry-after": formatdate(time.time() + 3_600).replace("+0000", "-0000")}
        stub.answer(Refusal(status=429, kind="rate_limit_error", message="x", headers=in_an_hour))
        with pytest.raises(TransientError) as caught:
            model.complete(asking())
    finally:
        monkeypatch.undo()
        time.tzset()
    assert 3_000.0 <= (caught.value.retry_after_s or 0.0) <= 3_600.0


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
    ],
)
def test_refusal_for_good_is_told_in_the_providers_words(
    stub: MessagesStub, model: AnthropicModel, status: int, kind: str
) -> None:
    """The message is the provider's own, with the request's id for its support, and no key or other header."""
    named = {"x-secret": "s3cr3t", "request-id": f"req_{KEY}"}
    stub.answer(Refusal(status=status, kind=kind, message="max_tokens: too high", headers=named))
    with pytest.raises(ModelError) as caught:
        model.complete(asking())
    assert str(caught.value) == f"the model's provider answered {status} {kind}: max_tokens: too high (request req_***)"
    assert KEY not in repr(caught.value)
    assert isinstance(caught.value, PromptTooLong) is (status == 413)


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 206768 tokens > 200000 maximum",
        "Input is too long for requested model.",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
    ],
)
def test_prompt_that_is_too_long_is_told_from_other_refusals(
    stub: MessagesStub, model: AnthropicModel, message: str
) -> None:
    """The provider's or a proxy's words tell, because the error has the same type as for any other bad request."""
    stub.answer(Refusal(status=400, kind="invalid_request_error", message=message))
    with pytest.raises(PromptTooLong, match="400 invalid_request_error"):
        model.complete(asking())


@pytest.mark.parametrize("message", [{"error": "bad"}, 7, ["bad"], None, ""])
@pytest.mark.parametrize(("status", "raised"), [(400, ModelError), (529, TransientError)])
def test_refusal_of_any_shape_is_told(
    stub: MessagesStub,
    model: AnthropicModel,
    message: Any,  # noqa: ANN401 - JSON
    status: int,
    raised: type[Exception],
) -> None:
    """An error of a proxy need not have Anthropic's form: it ends the call at once all the same."""
    odd: Any = ["odd"]
    stub.answer(
        Refusal(status=status, kind=odd, message=message), said(TEXT, ending=Ending.ERROR, error=(odd, message))
    )
    with pytest.raises(raised, match=rf"answered {status}: .*{'bad' if message and message != 7 else ''}"):
        model.complete(asking())
    with pytest.raises(TransientError, match="answered: "):
        model.complete(asking())


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    [
        ("text/plain", b"Out of credit.\n", "Out of credit."),
        ("application/json", b'{"error": "quota"}', '{"error":"quota"}'),
        ("application/json", b'{"detail": "no such route"}', '{"detail":"no such route"}'),
        ("text/html", b"<html>Forbidden</html>", "Forbidden"),
        ("text/plain", b"", "Forbidden"),
        ("text/plain", f"Who is {KEY}?".encode(), "Who is ***?"),
        ("application/json", f'{{"error": {{"message": "Bad key: {KEY}"}}}}'.encode(), "Bad key: ***"),
    ],
)
def test_refusal_of_a_proxy_is_told_without_the_key(kind: str, body: bytes, told: str) -> None:
    """The message is read by whoever waits for the turn, and by clients of the gateway."""
    with serving(body, status=403, kind=kind) as url, pytest.raises(ModelError) as caught:
        AnthropicModel(KEY, url).complete(asking())
    assert str(caught.value) == f"the model's provider answered 403: {told}"


@pytest.mark.parametrize(
    ("kind", "raised"),
    [("invalid_request_error", ModelError), ("overloaded_error", TransientError), (5, TransientError)],
)
def test_error_event_under_another_name_is_one(kind: object, raised: type[Exception]) -> None:
    """Its message is reported, and the request is not retried in vain."""
    event = json.dumps({"type": "error", "error": {"type": kind, "message": f"No, {KEY}."}})
    with (
        serving(f"event: message\ndata: {event}\n\n".encode()) as url,
        pytest.raises(raised, match=rf"answered {kind}: No, \*\*\*\."),
    ):
        AnthropicModel(KEY, url).complete(asking())


@pytest.mark.parametrize("data", ["5", "[]", f'"Who is {KEY}?"', f'["{"x" * 900}"]', "true", "null", "{", "[" * 9_000])
def test_stream_of_anything_but_events_is_asked_again(data: str) -> None:
    """Valid JSON of another shape counts as a broken stream, like invalid JSON; neither it nor the key is quoted."""
    body = f"event: content_block_delta\ndata: {data}\n\n".encode()
    with serving(body) as url, pytest.raises(TransientError, match="stream") as caught:
        AnthropicModel(KEY, url).complete(asking())
    assert KEY not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.parametrize("ending", [Ending.ERROR, Ending.CUT, Ending.CLOSE])
def test_stream_that_breaks_off_is_transient(
    stub: MessagesStub, model: AnthropicModel, ending: Ending, after: int
) -> None:
    """After an error event, a cut socket or an early clean end the step is asked again, whatever was said so far."""
    stub.answer(said(TEXT, ending=ending, after=after), said("whole"))
    with pytest.raises(TransientError):
        model.complete(asking())
    assert model.complete(asking()).content[0]["text"] == "whole"


def test_stream_that_ends_before_message_stop_is_not_whole(stub: MessagesStub, model: AnthropicModel) -> None:
    """Even if every block has arrived, only ``message_stop`` says that nothing is missing."""
    stub.answer(said("Hi", ending=Ending.CLOSE, after=5))
    with pytest.raises(TransientError, match="ended before its message did"):
        model.complete(asking())


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"<html>Log in</html>", "text/html"), (b'{"type": "message"}', "application/json"), (b"", "text/event-stream")],
)
def test_answer_without_events_is_told_by_its_content_type(body: bytes, kind: str) -> None:
    """A proxy that does not stream, or that shows a page to log in, is recognized by the message."""
    with serving(body, kind=kind) as url, pytest.raises(TransientError, match=f"a body of type '{kind}' without any"):
        AnthropicModel(KEY, url).complete(asking())


def test_error_event_for_good_ends_the_call_for_good(stub: MessagesStub, model: AnthropicModel) -> None:
    """An ``error`` event is judged by its type, because the response's status is 200."""
    stub.answer(said(TEXT, ending=Ending.ERROR, after=3, error=("invalid_request_error", "No.")))
    with pytest.raises(ModelError, match=r"answered invalid_request_error: No\."):
        model.complete(asking())


def test_provider_that_is_away_is_transient() -> None:
    """A refused connection is worth another try, and is reported without a traceback."""
    with pytest.raises(TransientError, match=r"connection to the model's provider failed: .*refused"):
        AnthropicModel(KEY, f"http://127.0.0.1:{free_port()}").complete(asking())


@pytest.mark.parametrize(("name", "value"), UNUSABLE)
def test_environment_that_cannot_be_used_is_told(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another try is of no use; the message names the variable, and shows no proxy's password."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ModelError, match=rf"provider cannot be asked: .* look at .*{name}") as caught:
        AnthropicModel(KEY, "https://provider.example").complete(asking())
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


def test_system_that_gives_no_file_is_transient(stub: MessagesStub) -> None:
    """Nothing is wrong with the certificates that could not be read."""
    model = AnthropicModel(KEY, stub.url)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, usual[1]))  # with 0, the stub's own `poll` would be refused
    try:
        with pytest.raises(TransientError, match="the model cannot be asked now: Too many open files"):
            model.complete(asking())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    stub.answer(said("Hi"))
    assert model.complete(asking()).content == tuple(said("Hi").content)


@pytest.mark.usefixtures("no_threads")
def test_system_that_gives_no_thread_is_transient() -> None:
    """Other threads will end, so the turn's own backoff retries."""
    model = AnthropicModel(KEY, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(TransientError, match="the model cannot be asked now: can't start new thread"):
        model.complete(asking())


@pytest.mark.parametrize("key", ["sk-ant-SECRET\n", "sk-ant-\nSECRET", "sk-ant-SECRET\t"])
def test_key_that_no_header_may_hold_is_refused_and_not_shown(stub: MessagesStub, key: str) -> None:
    """The library's own message would contain the header with the key; another try is of no use."""
    with pytest.raises(ModelError, match=r"^the model's provider cannot be asked: ANTHROPIC_API_KEY holds") as caught:
        AnthropicModel(key, stub.url).complete(asking())
    assert "SECRET" not in str(caught.value)
    assert not stub.asked


@pytest.mark.parametrize(
    "arguments", ['{"a": ', "[1]", '"text"', '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": ' + "[" * 9_000]
)
def test_malformed_arguments_are_asked_again(stub: MessagesStub, model: AnthropicModel, arguments: str) -> None:
    """Replacing them with an empty object could run the tool with its defaults."""
    stub.answer(Reply(content=[{**tool_use(1, "x"), "input": arguments}]))
    with pytest.raises(TransientError, match="arguments that are no JSON object"):
        model.complete(asking())


@pytest.mark.parametrize("count", [-1, 2.5, 10**19])
def test_senseless_number_of_tokens_is_asked_again(stub: MessagesStub, model: AnthropicModel, count: Any) -> None:  # noqa: ANN401 - whatever a proxy says
    """The number would otherwise be charged, shown and added up."""
    stub.answer(Reply(content=[{"type": "text", "text": "Hi"}], usage={"output_tokens": count}))
    with pytest.raises(TransientError, match="is no number of tokens"):
        model.complete(asking())


def test_thought_that_was_cut_short_is_left_out(stub: MessagesStub, model: AnthropicModel) -> None:
    """It has no signature, and the provider accepts no thinking back without one."""
    unsigned = {"type": "thinking", "thinking": "Which one? Th", "signature": ""}
    stub.answer(Reply(content=[unsigned], stop_reason="max_tokens"))
    reply = model.complete(asking())
    assert (reply.content, reply.stop_reason) == ((), "max_tokens")


def test_blank_text_is_left_out(stub: MessagesStub, model: AnthropicModel) -> None:
    """The provider refuses a history that contains one."""
    stub.answer(Reply(content=[{"type": "text", "text": "  \n"}, tool_use(1, "x")]))
    assert model.complete(asking()).content == (tool_use(1, "x"),)


def test_arguments_cut_short_by_the_limit_are_empty(stub: MessagesStub, model: AnthropicModel) -> None:
    """A reply at its token limit ends the turn and runs none of its calls, so cut arguments are no reason to repeat."""
    stub.answer(Reply(content=[{**tool_use(1, "x"), "input": '{"a": '}], stop_reason="max_tokens"))
    assert model.complete(asking()).content == (tool_use(1, "x"),)


class Asking:
    """A model call under way in another thread."""

    def __init__(self, model: AnthropicModel, **changes: Any) -> None:  # noqa: ANN401 - of the request
        self.stop = threading.Event()
        self.heard: list[str] = []
        self._pool = ThreadPoolExecutor(1)
        request = asking(stop=self.stop, on_text=self.heard.append, **changes)
        self.reply: Future[ModelReply] = self._pool.submit(model.complete, request)

    def said_when_stopped(self) -> str:
        """Stop the call, and return the text that it reports as said so far."""
        self.stop.set()
        with pytest.raises(Stopped) as caught:
            self.reply.result(30)
        self._pool.shutdown()
        return caught.value.said


@pytest.mark.parametrize(
    ("answer", "heard"),
    [
        (Silence(), ""),
        (said(TEXT, ending=Ending.HANG, after=0), ""),
        (said(TEXT, ending=Ending.HANG, after=4), "One two three fo"),
        (said(TEXT * 100, piece_chars=1, pause_s=0.01), None),
    ],
    ids=["before the headers", "before the first event", "in the middle", "while it talks"],
)
def test_call_stops_at_once_and_closes_its_connection(
    stub: MessagesStub, model: AnthropicModel, answer: Answer, heard: str | None
) -> None:
    """It ends within a second, reports the text so far, and the provider sees the connection closed."""

    def took_s() -> float:
        before = len(stub.asked)
        stub.answer(answer)
        call = Asking(model)
        asked = wait_until(lambda: stub.asked[before] if len(stub.asked) > before else None, "the request")
        wait_until(lambda: "".join(call.heard) == heard if heard is not None else len(call.heard) > 3, "the text")
        told_at = time.monotonic()
        text = call.said_when_stopped()
        assert text == "".join(call.heard)
        assert asked.left.wait(30)
        return time.monotonic() - told_at

    assert any(took_s() < SOON_S for _ in range(TRIES))
    stub.answer(said("still works"))
    assert model.complete(asking()).content[0]["text"] == "still works"


@pytest.mark.parametrize("answer", [Silence(), said(TEXT * 100, piece_chars=1, pause_s=0.02)], ids=["silent", "slow"])
def test_call_ends_when_its_time_is_over(stub: MessagesStub, model: AnthropicModel, answer: Answer) -> None:
    """``timeout_s`` limits the whole call, even one that keeps talking; the connection is closed."""
    while not stub.asked:  # connecting is part of the call, and may take all of the time
        stub.answer(answer)
        with pytest.raises(TransientError, match=r"did not answer within 0\.4 s"):
            model.complete(asking(timeout_s=0.4))
    assert stub.asked[0].left.wait(20)


@pytest.mark.parametrize(
    ("answer", "limit"),
    [
        (Silence(), "FIRST_BYTE_S"),
        (said(TEXT, ending=Ending.HANG, after=0), "FIRST_BYTE_S"),
        (said(TEXT, ending=Ending.HANG, after=4), "PAUSE_S"),
    ],
    ids=["before the headers", "before the first event", "in the middle"],
)
def test_call_that_falls_silent_ends_before_its_time(
    stub: MessagesStub, model: AnthropicModel, monkeypatch: pytest.MonkeyPatch, answer: Answer, limit: str
) -> None:
    """Each wait has its own limit. The connection is closed, and another try may use the time that is left."""
    monkeypatch.setattr(silence, limit, 0.4)
    while not stub.asked:  # waiting for the headers begins with connecting
        stub.answer(answer)
        with pytest.raises(TransientError, match=r"sent nothing for 0\.4 s"):
            model.complete(asking(timeout_s=60.0))
    assert stub.asked[0].left.wait(20)


def test_pings_keep_a_call_from_being_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that thinks for long sends nothing but pings, which the SDK does not report."""
    monkeypatch.setattr(silence, "PAUSE_S", 1.5)
    first, *rest = (f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in EVENTS)

    def pings() -> Generator[bytes]:
        yield first
        until = time.monotonic() + 3
        while time.monotonic() < until:
            threading.Event().wait(0.05)
            yield b"event: ping\ndata: {}\n\n"
        yield from rest

    with serving(pings()) as url:
        assert AnthropicModel(KEY, url).complete(asking()).stop_reason == "end_turn"


def calls_since(before: set[threading.Thread]) -> list[threading.Thread]:
    """The threads of calls that have started since and not ended."""
    return [each for each in threading.enumerate() if each.name == "model-call" and each not in before]


def test_stream_that_goes_on_after_its_last_event_is_cut() -> None:
    """A proxy that only sends pings from then on must not keep a thread and a connection for each call."""
    whole = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in EVENTS).encode()
    gone, before = threading.Event(), set(threading.enumerate())

    def pings() -> Generator[bytes]:
        yield whole
        until = time.monotonic() + 60
        while time.monotonic() < until and not gone.wait(0.05):
            yield b"event: ping\ndata: {}\n\n"

    with serving(pings()) as url:
        assert AnthropicModel(KEY, url).complete(asking()).stop_reason == "end_turn"
        try:
            wait_until(lambda: not calls_since(before), "the thread's end")
        finally:
            gone.set()


def test_call_that_cannot_connect_stops_at_once() -> None:
    """A provider that accepts no connection does not delay the stop."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        for _ in range(2):  # as many as the kernel accepts on its behalf; later ones wait
            filler = waiting.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        call = Asking(AnthropicModel(KEY, f"http://127.0.0.1:{full.getsockname()[1]}"))
        wait_until(lambda: "model-call" in [thread.name for thread in threading.enumerate()], "the call")
        assert call.said_when_stopped() == ""
