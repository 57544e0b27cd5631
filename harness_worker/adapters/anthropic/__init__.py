"""Claude behind ``ports.ModelClient``. Importing ``client`` loads the SDK, which takes seconds on a slow machine."""

from __future__ import annotations
