"""A file of results: what a sweep goes on from after whatever happened to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness_worker.entrypoints.cli.eval.results_file import ResultsFile
from harness_worker.errors import ConfigError
from harness_worker.evaluation.results import Found, result_of
from tests.unit.eval_kit import cell, turn

FIRST, SECOND = cell(repeat=1), cell(repeat=2)


def line_of(repeat: int, sweep: str = "s", **members: object) -> str:
    """A line that was written."""
    found = result_of(cell(repeat=repeat, sweep=sweep), Found(turns=(turn(**members),)), None)
    return found.model_dump_json() + "\n"


def test_results_are_kept(tmp_path: Path) -> None:
    """In a directory that is made for them; the last line of a cell counts."""
    path = tmp_path / "new" / "results.jsonl"
    result = result_of(FIRST, Found(turns=(turn("Hi."),)), None)
    with ResultsFile(path, "s") as file:
        assert file.kept(FIRST, None) is None
        file.add(result)
    with path.open("a") as again:
        again.write(line_of(1, output_text="Ho."))
    with ResultsFile(path, "s") as file:
        kept = file.kept(FIRST, None)
        assert kept is not None
        assert kept.output_text == "Ho."
        assert file.kept(SECOND, None) is None


def test_result_counts_for_what_was_asked_and_expected(tmp_path: Path) -> None:
    """Of an edited case, another check, or a turn that was not over, there is no result yet."""
    path = tmp_path / "results.jsonl"
    path.write_text(line_of(1) + line_of(2, status="running", stop_reason=None))
    with ResultsFile(path, "s") as file:
        assert file.kept(FIRST, None) is not None
        assert file.kept(cell(input="other"), None) is None
        assert file.kept(cell(expect={"equals": "x"}), None) is None
        assert file.kept(FIRST, "m:f") is None
        assert file.kept(SECOND, None) is None


def test_torn_line_is_taken_away(tmp_path: Path) -> None:
    """However much of a line was written when its writer died: the lines before it are kept, the next is whole."""
    whole, second, result = line_of(1), line_of(2).encode(), result_of(SECOND, Found(turns=(turn(),)), None)
    for length in range(len(second)):
        path = tmp_path / f"{length}.jsonl"  # a file that is emptied instead would be written to the disk each time
        path.write_bytes(whole.encode() + second[:length])
        with ResultsFile(path, "s") as file:
            assert file.kept(FIRST, None) is not None
            assert file.kept(SECOND, None) is None
            file.add(result)
        assert path.read_text() == whole + second.decode()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"input": "a"}\n', "line 1 is no result of a sweep: name another file"),
        ("my only copy", "its last line is no result of a sweep: name another file"),
        ("\n", "line 1 is no result of a sweep"),
        (line_of(1) + "x\n", "line 2 is no result of a sweep"),
        (line_of(1, "other"), "line 1 is of the sweep other: go on with it by --name, or name another file"),
    ],
)
def test_file_of_something_else_is_left_alone(text: str, told: str, tmp_path: Path) -> None:
    """Not a byte of it is changed."""
    path = tmp_path / "results.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        ResultsFile(path, "s")
    assert str(refused.value).startswith(f"--out {path}")
    assert told in str(refused.value)
    assert path.read_text() == text


def test_two_sweeps_do_not_write_to_one_file(tmp_path: Path) -> None:
    """The second is told; when the first is over, however it ended, the file is free."""
    path = tmp_path / "results.jsonl"
    with ResultsFile(path, "s"), pytest.raises(ConfigError, match="another sweep writes to it"):
        ResultsFile(path, "s")
    with ResultsFile(path, "s"):
        pass


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A directory, a device, a pipe, a place that cannot be: told at once, and waited for by nobody."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    for place in (tmp_path, Path("/dev/full"), Path("/dev/null"), tmp_path / "pipe", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=f"--out {place}: "):
            ResultsFile(place, "s")
