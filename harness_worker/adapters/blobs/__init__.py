"""The bytes of artifacts, on any file system that fsspec knows."""

from __future__ import annotations
