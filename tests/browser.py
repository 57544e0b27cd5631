"""A real browser, without a screen: the machine's, or Debian's Chromium."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.debian import debian_program

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
QUIET: Final = (
    "--headless",
    "--no-sandbox",  # the tests may run as root, and load our own pages alone
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
PAGE_TIMEOUT_S: Final = 90


def find_browser() -> str:
    """The browser's program.

    Raises:
        OSError: There is none, and it cannot be installed; the message says what to do.
    """
    found = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    return found or debian_program("chromium", "chromium")


def look(url: str, profile: Path, *, picture: Path, width: int, height: int, settle_ms: int) -> str:
    """Load a page as a person's browser does, and keep what it shows.

    Args:
        url: The page.
        profile: An empty directory for the browser.
        picture: Gets a PNG of the window.
        width: Of the window, in pixels.
        height: Of the window, in pixels.
        settle_ms: How long the page's scripts may work.

    Returns:
        The page's document after its scripts ran.
    """
    size = (f"--window-size={width},{height}", f"--user-data-dir={profile}", f"--virtual-time-budget={settle_ms}")
    shown = [
        subprocess.run(
            [find_browser(), *QUIET, *size, option, url],
            capture_output=True,
            text=True,
            timeout=PAGE_TIMEOUT_S,
            check=True,
        ).stdout
        for option in (f"--screenshot={picture}", "--dump-dom")
    ]
    return shown[-1]
