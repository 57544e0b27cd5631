"""What to do where an optional dependency is missing."""

from __future__ import annotations


def installing(extra: str) -> str:
    """How the harness gets one of its extras; package indexes know another project by its name."""
    return f"install the harness with its extra {extra!r} (in its checkout: .ci/install {extra})"
