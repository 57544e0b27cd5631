"""Claude behind ``ports.ModelClient``. Only ``client`` loads the SDK, which costs seconds on a slow machine."""

from __future__ import annotations
