"""An app that takes the standard streams away from its worker."""

from __future__ import annotations

import sys

from tests.apps.trivial import registry

__all__ = ["registry"]

sys.stdout.close()
sys.stderr = None
