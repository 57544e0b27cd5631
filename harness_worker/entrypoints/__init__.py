"""What starts the processes of the harness: the command line, the workers, and the stack of one machine."""

from __future__ import annotations
