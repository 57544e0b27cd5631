"""Tasks of public benchmarks, run through the harness and compared with a plain replay of the same calls."""

from __future__ import annotations
