"""The commands, each in a module of its own, and the one place where errors become messages."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Annotated, Final

import typer

from harness_worker.entrypoints.cli.lazy import Lazy, lazy_group
from harness_worker.entrypoints.cli.standard_streams import lost_output, take_any_text, tell
from harness_worker.entrypoints.messages import FAILED, MESSAGE_PREFIX, UNREACHABLE, WRONG_USAGE
from harness_worker.errors import ConfigError, HarnessError, TransientError
from harness_worker.urls import masked

UNPROCESSABLE: Final = 422
"""The gateway's status for an option that makes no sense."""

UNKNOWN_AGENT: Final = "unknown_agent"
"""The gateway's error code for an agent that does not exist."""

UNAVAILABLE: Final = 503
"""The gateway's status while a service that it needs is away."""

_UNWRITTEN: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_ADDRESSES: Final = {"--home": "name a directory", "--url": "give http://HOST:PORT"}
_DISTRIBUTION: Final = "agent-harness"

_HELP: Final = """Run agents whose turns survive any process dying.

Start everything on this machine, with your own agents, then ask one of them from another terminal:

\b
    harness up --app package.module:registry
    harness run "Where is my order 1042?" --agent support

Check that everything is well, and list turns:

\b
    harness doctor
    harness turns list --status running

On several machines, give all of them one HARNESS_REDIS_URL and one HARNESS_DATABASE_URL, and start the parts:

\b
    harness migrate
    harness keys create --tenant acme --name billing
    harness gateway --host 0.0.0.0
    harness worker --role coordinator --app package.module:registry
    harness worker --role tools --app package.module:registry

Exit codes: 0 done, 1 the work failed, 2 wrong usage, 3 the stack or a service it needs does not answer, 130
Ctrl-C (0 for the servers up, gateway, worker and flower).
"""

_PACKAGE: Final = "harness_worker.entrypoints.cli"
_COMMANDS: Final = (
    Lazy(name="up", where=f"{_PACKAGE}.up:up", help="Run everything on this machine."),
    Lazy(name="run", where=f"{_PACKAGE}.run:run", help="Ask an agent one question."),
    Lazy(name="agents", where=f"{_PACKAGE}.agents:agents", help="List the agents that can be asked."),
    Lazy(
        name="turns",
        where=f"{_PACKAGE}.turns.commands:app",
        help="List, show, follow, cancel, approve, deny and fork turns.",
    ),
    Lazy(name="usage", where=f"{_PACKAGE}.usage:usage", help="Show what turns have used, in tokens and dollars."),
    Lazy(name="batches", where=f"{_PACKAGE}.batches:app", help="Post many turns at once, and fetch their results."),
    Lazy(name="doctor", where=f"{_PACKAGE}.doctor:doctor", help="Check the stack, and say what to fix."),
    Lazy(
        name="eval", where=f"{_PACKAGE}.eval.commands:eval_", help="Ask agents your own cases, and say how many pass."
    ),
    Lazy(name="compare", where=f"{_PACKAGE}.eval.compare:compare", help="Compare two sweeps of eval, case by case."),
    Lazy(name="sweep", where=f"{_PACKAGE}.sweep.commands:app", help="Replay real workloads and compare every effect."),
    Lazy(name="worker", where=f"{_PACKAGE}.worker:worker", help="Run one worker."),
    Lazy(name="drain", where=f"{_PACKAGE}.drain:drain", help="Ask workers to finish and exit."),
    Lazy(name="gateway", where=f"{_PACKAGE}.gateway:gateway", help="Serve HTTP."),
    Lazy(name="keys", where=f"{_PACKAGE}.keys:app", help="Make, list and revoke API keys of the gateway."),
    Lazy(name="flower", where=f"{_PACKAGE}.flower:flower", help="Serve Flower, to watch the workers."),
    Lazy(name="webhooks", where=f"{_PACKAGE}.webhooks:app", help="Show what receivers of webhooks need."),
    Lazy(name="migrate", where=f"{_PACKAGE}.migrate:migrate", help="Upgrade the database to this version."),
    Lazy(name="memories", where=f"{_PACKAGE}.memories:app", help="Show and forget what is remembered about a user."),
    Lazy(name="prune", where=f"{_PACKAGE}.prune:prune", help="Remove old sessions from the database."),
    Lazy(name="demo", where=f"{_PACKAGE}.demo:demo", help="Watch three turns of a small shop."),
)

# Plain help, because rich would read its [env: …] as markup.
app = typer.Typer(
    name="harness",
    cls=lazy_group(_COMMANDS),
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"harness {_version()}")
        raise typer.Exit


@app.callback()
def _options(  # pyright: ignore[reportUnusedFunction] - typer calls it
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> int:
    """Run the command line of this process.

    Returns:
        The exit code. Errors are printed on stderr, without a traceback unless HARNESS_LOG_LEVEL is DEBUG.
    """
    take_any_text()
    code = _run()
    return _told_loss() or code


def _run() -> int:
    try:
        _check_arguments()
        app(prog_name="harness")
    except HarnessError as wrong:
        return _told(str(wrong), _exit_code(wrong))
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except Exception as bug:  # noqa: BLE001 - the boundary where errors of any kind become words
        return _told_loss() or _told_bug(bug)
    return 0


def _told_bug(bug: Exception) -> int:
    if _is_debugging():
        tell("".join(traceback.format_exception(bug)).rstrip())
    return _told(_in_words(bug), FAILED)


def _is_debugging() -> bool:
    try:
        from harness_worker.config import load_settings  # noqa: PLC0415 - not needed unless something breaks

        return load_settings().log_level == "DEBUG"
    except Exception:  # noqa: BLE001 - what broke may be what this needs: the first error is the one to tell
        return False


def _told_loss() -> int:
    """The exit code for lost output, after a message unless the reader closed the pipe; 0 if none was lost."""
    lost = lost_output()
    if lost is None:
        return 0
    return FAILED if isinstance(lost, BrokenPipeError) else _told(f"cannot write the output: {lost.strerror}", FAILED)


def _in_words(bug: Exception) -> str:
    if isinstance(bug, OSError) and bug.filename:
        return f"{bug.filename}: {bug.strerror}"
    if isinstance(bug, OSError) and bug.errno in _UNWRITTEN:
        return f"cannot write: {bug.strerror}"
    return f"internal error: {type(bug).__name__}: {bug} (HARNESS_LOG_LEVEL=DEBUG shows where)"


def _check_arguments() -> None:
    """Refuse a blank address, and bytes that are not text, which neither JSON nor SQL can hold."""
    encoding = sys.getfilesystemencoding()
    for argument in sys.argv[1:]:
        given = os.fsencode(argument)
        shown = given.decode(encoding, errors="backslashreplace")
        if os.fsencode(shown) != given:
            raise ConfigError(f"{masked(shown)}: this argument is not text in {encoding}")
    for option, advice in _ADDRESSES.items():
        _check_address(option, advice, sys.argv[1:])


def _check_address(option: str, advice: str, arguments: Sequence[str]) -> None:
    """Refuse a blank address, as from an unset shell variable: the command would act on another stack."""
    given = [value for name, value in pairwise(arguments) if name == option]
    given += [argument.removeprefix(f"{option}=") for argument in arguments if argument.startswith(f"{option}=")]
    if any(not address.strip() for address in given):
        raise ConfigError(f"{option} is blank: {advice}, or leave it out")


def _told(message: str, code: int) -> int:
    tell(f"{MESSAGE_PREFIX}{message}")
    return code


def _exit_code(wrong: HarnessError) -> int:
    status = getattr(wrong, "status", None)
    is_refused = status == UNPROCESSABLE or getattr(wrong, "code", None) == UNKNOWN_AGENT
    if isinstance(wrong, ConfigError) or is_refused:
        return WRONG_USAGE
    return UNREACHABLE if isinstance(wrong, TransientError) or status == UNAVAILABLE else FAILED


def _version() -> str:
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "(not installed)"
