"""The file of results, one line per cell, from which a stopped sweep continues."""

from __future__ import annotations

import fcntl
import os
import stat
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Final, Self

from pydantic import ValidationError

from harness_worker.errors import ConfigError
from harness_worker.evaluation.cells import Cell
from harness_worker.evaluation.results import Result

HEAD: Final = b'{"sweep":'
"""The beginning of every line, which tells an incomplete line from somebody else's file."""

NOT_OURS: Final = "is no result of a sweep: name another file"


class ResultsFile:
    """Results of one sweep, appended as they come; a cell's last line counts. A context manager.

    A process that dies while writing leaves an incomplete last line, which is removed. Two sweeps cannot write to one
    file.

    Args:
        path: The file; it and its directory are created.
        sweep: The sweep's name.

    Raises:
        ConfigError: The file cannot be written, another process writes to it, or it holds anything but results of this
            sweep.
    """

    def __init__(self, path: Path, sweep: str) -> None:
        self._file = _opened(path)
        try:
            lines = _taken_up(self._file, f"--out {path}", sweep)
        except BaseException:
            self._file.close()
            raise
        self._kept = {(found.asked, found.expected): found for found in lines}
        self._asked = {found.asked: found for found in lines}
        self._last = {_cell_of(found): found for found in lines}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def latest(self, cell: Cell, *, retry_failed: bool) -> Cell:
        """The cell with the number of its latest retry; of the next one, if that is void and is to be retried."""
        while (following := replace(cell, retry=cell.retry + 1)).asked in self._asked:
            cell = following
        found = self._asked.get(cell.asked)
        return following if retry_failed and found is not None and found.is_void else cell

    def kept(self, cell: Cell, check: str | None) -> Result | None:
        """The result of a cell, if it is final and was compared with what is expected now."""
        found = self._kept.get((cell.asked, cell.expected(check)))
        return found if found is not None and found.is_settled else None

    def add(self, result: Result) -> None:
        """Append a line.

        Raises:
            OSError: It cannot be written.
        """
        left = memoryview(result.model_dump_json().encode() + b"\n")
        while left:
            left = left[self._file.write(left) :]
        self._last[_cell_of(result)] = result

    def make_last(self, result: Result) -> None:
        """Append a result again if another one of its cell follows it, because the case was changed and changed back.

        Raises:
            OSError: It cannot be written.
        """
        if self._last[_cell_of(result)] != result:
            self.add(result)


def _cell_of(result: Result) -> tuple[str, str, int]:
    return result.agent, result.case, result.repeat


def _opened(path: Path) -> FileIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ConfigError(f"--out {path}: {error.strerror}") from error
    file = FileIO(number, "r+")
    try:
        _take(file)
    except (ConfigError, OSError) as error:
        file.close()
        raise ConfigError(f"--out {path}: {error}") from error
    return file


def _take(file: FileIO) -> None:
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise ConfigError("give the name of a file; a sweep reads its results again to go on")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError("another sweep writes to it; wait for its end, or name another file") from error


def read_results(data: bytes, where: str) -> tuple[Result, ...]:
    """The results in a file of one sweep, one for each cell; an incomplete last line is left out.

    Args:
        data: The file's content.
        where: The file's name, for error messages.

    Raises:
        ConfigError: The file holds no results, something else, or results of two sweeps.
    """
    lines, _ = _parsed(data, where)
    found = {_cell_of(result): result for result in lines}
    sweeps = list(dict.fromkeys(result.sweep for result in lines))
    if len(sweeps) != 1:
        held = f"results of the sweeps {sweeps[0]} and {sweeps[1]}" if sweeps else "no results"
        raise ConfigError(f"{where} holds {held}: name the file that harness eval wrote for one sweep by --out")
    return tuple(found.values())


def _taken_up(file: FileIO, where: str, sweep: str) -> list[Result]:
    """The lines of a sweep that is continued; an incomplete last line is cut off."""
    lines, torn = _parsed(file.readall(), where)
    for number, result in enumerate(lines, start=1):
        if result.sweep != sweep:
            is_of = f"is of the sweep {result.sweep}: go on with it by --name, or name another file"
            raise ConfigError(f"{where}, line {number} {is_of}")
    if torn:
        file.truncate(file.tell() - torn)
    return lines


def _parsed(data: bytes, where: str) -> tuple[list[Result], int]:
    """The complete lines, and how many bytes of an incomplete one follow them."""
    *lines, rest = data.split(b"\n")
    results = [_result(line, f"{where}, line {number}") for number, line in enumerate(lines, start=1)]
    if rest and not (rest.startswith(HEAD) or HEAD.startswith(rest)):
        raise ConfigError(f"{where}: its last line {NOT_OURS}")
    return results, len(rest)


def _result(line: bytes, where: str) -> Result:
    try:
        return Result.model_validate_json(line)
    except ValidationError:
        raise ConfigError(f"{where} {NOT_OURS}") from None
