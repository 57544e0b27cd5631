"""A real browser, without a screen: Debian's Chromium, installed if it is missing and we may."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

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
INSTALL_TIMEOUT_S: Final = 600
PAGE_TIMEOUT_S: Final = 90


def find_browser() -> str:
    """The browser's program.

    Raises:
        RuntimeError: There is none, and it cannot be installed; the message says what to do.
    """
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for step in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", *step], capture_output=True, timeout=INSTALL_TIMEOUT_S, check=False)
        found = _found()
    if found is None:
        raise RuntimeError("no browser for the tests: install Chromium (Debian: apt install chromium)")
    return found


def _found() -> str | None:
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


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
