"""The command line ``harness``. Imports as little as possible before a Ctrl-C can be handled."""

from __future__ import annotations

from harness_worker.entrypoints.loading import loading
from harness_worker.entrypoints.messages import INTERRUPTED


def main() -> int:
    """Run the command line of this process.

    Returns:
        The exit code; also that of a Ctrl-C which comes while the rest is imported.
    """
    try:
        with loading():
            from harness_worker.entrypoints.cli import program  # noqa: PLC0415 - takes long

        return program.main()
    except KeyboardInterrupt:
        return INTERRUPTED
