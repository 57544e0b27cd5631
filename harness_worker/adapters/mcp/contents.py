"""Turns a server's answer to a call into text for the model."""

from __future__ import annotations

from typing import assert_never

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from harness_worker.core.canonical import compact


def text_of(result: CallToolResult) -> str:
    """The answer's texts as they are, one after another; other content is named but not shown.

    Structured content is used only if there is no other content, because servers repeat it as text.
    """
    if not result.content and result.structured_content is not None:
        return compact(result.structured_content)
    return "\n".join(map(_text, result.content))


def _text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return _unshown("image", block.mime_type, block.data)
        case AudioContent():
            return _unshown("audio", block.mime_type, block.data)
        case ResourceLink():
            return f"[resource {block.uri}: {block.title or block.name}]"
        case EmbeddedResource():
            held = block.resource
            if isinstance(held, BlobResourceContents):
                return _unshown(f"resource {held.uri}", held.mime_type, held.blob)
            return held.text
        case _:
            assert_never(block)


def _unshown(what: str, mime_type: str | None, base64: str) -> str:
    size_bytes = len(base64.rstrip("=")) * 3 // 4
    return f"[{what}, {mime_type or 'of no type'}, {size_bytes} bytes, not shown]"
