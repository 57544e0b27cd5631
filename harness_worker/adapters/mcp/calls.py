"""Makes a server's tool a tool of the harness, and judges calls that got no answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    InputRequiredResult,
    RequestParamsMeta,
)
from pydantic import TypeAdapter, ValidationError

from harness_worker.adapters.mcp.contents import text_of
from harness_worker.adapters.mcp.exchanges import AnswerTooLong, Exchange
from harness_worker.adapters.mcp.keeping import KeptConnection, Unreached
from harness_worker.adapters.mcp.tool_listing import all_tools
from harness_worker.core.run_context import RunContext
from harness_worker.core.tool_results import describe
from harness_worker.errors import SYSTEM_ERRORS, ToolError, ToolOutcomeUnknown, ToolTransientError

KEY: Final = "agent-harness/idempotency-key"
"""The name of a call's idempotency key in the ``_meta`` of its request."""

_BUSY: Final = 429
_NO_ANSWERS: Final = (
    "Connection closed",
    "SSE stream ",
    "Failed to parse ",
    "Unexpected content type",
    "Server returned an error response",
    "server answered a request with 202",
)
"""The beginnings of errors that the SDK itself raises if a request was sent and got no answer."""

_RESULT: Final[TypeAdapter[CallToolResult | InputRequiredResult]] = TypeAdapter(CallToolResult | InputRequiredResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """Calls one tool of a server.

    Args:
        server: The server's name, for messages to the model.
        tool: The server's name for the tool.
        kept: The connection to the server.
    """

    server: str
    tool: str
    kept: KeptConnection

    def __call__(self, arguments: Mapping[str, Any], ctx: RunContext) -> str:
        """The server's answer, as text.

        Raises:
            ToolError: The server, or the tool, refused or failed.
            ToolTransientError: The server could not be reached, or is busy: the tool was not run.
            ToolOutcomeUnknown: The request was sent, and no answer came, or it was lost.
        """
        try:
            return self._answer(arguments, ctx)
        except SYSTEM_ERRORS as error:  # such as a lack of memory for the answer
            raise ToolOutcomeUnknown(f"the answer of {self.server} was lost: {describe(error)}") from None

    def _answer(self, arguments: Mapping[str, Any], ctx: RunContext) -> str:
        exchange = Exchange()
        ask = partial(_called, request=_request(self.tool, arguments, ctx))
        try:
            result = self.kept.ask(ask, exchange, within_s=max(0.0, ctx.deadline.remaining_s()))
        except Unreached as error:
            raise ToolTransientError(str(error)) from None
        except MCPError as error:
            self._failed(error, exchange)
        except TimeoutError:
            raise ToolOutcomeUnknown(f"{self.server} did not answer in time") from None
        except ValidationError:
            raise ToolOutcomeUnknown(f"{self.server} sent something that is not a tool result") from None
        if isinstance(result, InputRequiredResult):
            raise ToolError(f"{self.server} asks for input, which nobody can give here{_questions(result)}")
        if result.is_error:
            raise ToolError(text_of(result))
        return text_of(result)

    def _failed(self, error: MCPError, exchange: Exchange) -> NoReturn:
        status = exchange.status
        if not exchange.was_sent:
            raise ToolTransientError(f"{self.server} was not reached: {type(exchange.error).__name__}") from None
        if status == _BUSY:
            raise ToolTransientError(f"{self.server} is busy") from None
        if not error.message.startswith(_NO_ANSWERS):
            raise ToolError(error.message) from None
        if status is not None and 400 <= status < 500:
            raise ToolError(f"{self.server} refused the call: HTTP {status}") from None
        raise ToolOutcomeUnknown(f"{self.server} did not answer: {_why(error, exchange)}") from None


def _request(tool: str, arguments: Mapping[str, Any], ctx: RunContext) -> CallToolRequest:
    meta: RequestParamsMeta = {KEY: ctx.idempotency_key}  # pyright: ignore[reportAssignmentType] - an open map
    return CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(arguments), _meta=meta))


async def _called(client: Client, *, request: CallToolRequest) -> CallToolResult | InputRequiredResult:
    """Call a tool without the SDK's own method, which would list the tools again to check an answer meant for models.

    A server that wants arguments in headers, too, refuses the first call; the SDK learns which ones from the list.
    """
    try:
        return await client.session.send_request(request, _RESULT)
    except MCPError as error:
        if error.code != HEADER_MISMATCH:
            raise
    await all_tools(client)
    return await client.session.send_request(request, _RESULT)


def _questions(result: InputRequiredResult) -> str:
    """The server's questions, for the model, which may know the answers and the arguments they belong in."""
    asked = (result.input_requests or {}).values()
    said = [request.params.message for request in asked if isinstance(request, ElicitRequest)]
    return f": {'; '.join(said)}" if said else ""


def _why(error: MCPError, exchange: Exchange) -> str:
    if isinstance(exchange.error, AnswerTooLong):
        return str(exchange.error)
    if exchange.error is not None:
        return type(exchange.error).__name__
    if exchange.status is not None and exchange.status >= 500:
        return f"HTTP {exchange.status}"
    return error.message
