"""The examples of the reference pages print what the pages say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.stacks import ROOT

PAGES: Final = ROOT / "docs" / "reference"
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCRIPT: Final = re.compile(r'"scripted:([\w.]+)"')


PAGES_WITH_EXAMPLES: Final = (
    *("budgets", "calls", "citations", "compaction", "decisions", "gates", "hooks", "judges", "memory", "thinking"),
    *("tool-selection", "vault"),
)


@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES)
def test_example_prints_what_the_page_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One example a page: its code, the model's script, and what it prints."""
    blocks = dict(BLOCK.findall((PAGES / f"{page}.md").read_text()))
    monkeypatch.chdir(tmp_path)
    (script,) = set(SCRIPT.findall(blocks["python"]))
    (tmp_path / script).write_text(blocks["jsonl"])
    names: dict[str, Any] = {"__name__": page}
    exec(compile(blocks["python"], f"{page}.py", "exec"), names)  # noqa: S102 - our own page
    assert capsys.readouterr().out == blocks["text"]
