"""``python -m harness_worker.entrypoints.cli``: the command line, where its script is not on PATH."""

from __future__ import annotations

import sys

from harness_worker.entrypoints.cli import main

if __name__ == "__main__":
    sys.exit(main())
