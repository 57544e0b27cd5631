"""``harness memories``: show and forget what is remembered about a user."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, TypeAlias

import typer

from harness_worker.adapters.sql.memories import SqlMemories
from harness_worker.core.memory.memories import user_scope
from harness_worker.entrypoints.cli.options import JournalHome
from harness_worker.entrypoints.cli.output import write, write_json
from harness_worker.entrypoints.cli.standard_streams import tell
from harness_worker.entrypoints.journal import open_journal
from harness_worker.entrypoints.plain import one_line, plain
from harness_worker.entrypoints.view.figures import counted
from harness_worker.wire import DEFAULT_TENANT, rfc3339

app = typer.Typer(
    no_args_is_help=True,
    help="""Show what is remembered about a user, and forget it.

    A user is named by the metadata of a tenant's turns: {"user": "ann"}.

    \b
        harness memories list --user ann
        harness memories forget --user ann

    Works on the database of HARNESS_DATABASE_URL, else on that of the stack in --home.
    """,
)

User: TypeAlias = Annotated[str, typer.Option(metavar="NAME", help="As named in turns' metadata.", show_default=False)]
Tenant: TypeAlias = Annotated[str, typer.Option(metavar="NAME", help="Whose user.")]


@app.command("list", short_help="Show what is remembered about a user.")
def list_(
    *,
    user: User,
    tenant: Tenant = DEFAULT_TENANT,
    home: JournalHome = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {data: [{kind, text, turn_id, created_at}]}.")] = False,
) -> None:
    """Show what is remembered about a user, newest first; what they said several times is shown as often."""
    with open_journal(home) as engine:
        found = SqlMemories(engine).listed(tenant, user_scope(user))
    if as_json:
        write_json({"data": [{**asdict(each), "created_at": rfc3339(each.created_at)} for each in found]})
        return
    for each in found:
        write(f"{rfc3339(each.created_at)}  {each.kind:<10}  {one_line(each.text)}")
    if not found:
        tell(_nothing(user, tenant))


@app.command(short_help="Forget what is remembered about a user.")
def forget(
    *,
    user: User,
    tenant: Tenant = DEFAULT_TENANT,
    home: JournalHome = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {forgotten}.")] = False,
) -> None:
    """Forget what is remembered about a user. Turns that start later no longer see it.

    What the user said stays in the turns themselves until `harness prune` removes them. A turn of the user that still
    runs, or has just ended, may leave new memories: run the command again once such turns are over.
    """
    with open_journal(home) as engine:
        gone = SqlMemories(engine).forget(tenant, user_scope(user))
    if as_json:
        write_json({"forgotten": gone})
    elif gone:
        write(plain(f"forgot {counted(gone, 'memory', 'memories')} of user {user!r} of tenant {tenant}"))
    else:
        write(_nothing(user, tenant))


def _nothing(user: str, tenant: str) -> str:
    return plain(f"nothing is remembered of user {user!r} of tenant {tenant}")
