"""Advice for when an optional dependency is missing."""

from __future__ import annotations


def installing(extra: str) -> str:
    """How to install one of the harness's extras; package indexes have another project under the harness's name."""
    return f"install the harness with its extra {extra!r} (in its checkout: .ci/install {extra})"
