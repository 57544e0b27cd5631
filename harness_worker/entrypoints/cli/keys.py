"""``harness keys``: API keys of the gateway, each of which belongs to a tenant."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from harness_worker.adapters.sql.api_keys import SqlApiKeys
from harness_worker.config import load_settings
from harness_worker.core.api_keys import ApiKey, checked_name
from harness_worker.credentials import KEY_PREFIX, key_digest
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.cli.options import JournalHome
from harness_worker.entrypoints.cli.output import console, write, write_json
from harness_worker.entrypoints.cli.standard_streams import lost_output, tell
from harness_worker.entrypoints.journal import open_journal
from harness_worker.entrypoints.plain import plain
from harness_worker.entrypoints.view.key_table import key_table
from harness_worker.errors import HarnessError, PermanentError
from harness_worker.wire import JsonObject, rfc3339

KEY_BYTES: Final = 32
ID_BYTES: Final = 6

app = typer.Typer(
    no_args_is_help=True,
    help="""Make, list and revoke API keys of the gateway.

    A request with `Authorization: Bearer KEY` acts for the key's tenant; tenants see nothing of each other.

    \b
        KEY=$(harness keys create --tenant acme --name billing --days 90)
        harness keys list --tenant acme
        harness keys revoke 5d1c0f9a2b7e

    Works on the database of HARNESS_DATABASE_URL, else on that of the stack in --home.
    """,
)


@app.command(short_help="Make a key, and print it once.")
def create(
    *,
    tenant: Annotated[str, typer.Option(metavar="NAME", help="The tenant that it belongs to.", show_default=False)],
    name: Annotated[
        str, typer.Option(metavar="NAME", help="What the key is for, shown in the list.", show_default=False)
    ],
    days: Annotated[
        int | None,
        typer.Option(
            metavar="DAYS", min=1, max=36_500, help="How long it is accepted; without it, until it is revoked."
        ),
    ] = None,
    home: JournalHome = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {key, id, tenant, name, created_at, …}.")] = False,
) -> None:
    """Make a key and print it alone on stdout, once; only its hash is stored.

    A tenant needs no other preparation: it begins with its first key.
    """
    whose = {"tenant": checked_name(tenant, "--tenant"), "name": checked_name(name, "--name")}
    key = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    with open_journal(home) as engine:
        keys = SqlApiKeys(engine)
        made = keys.add(secrets.token_hex(ID_BYTES), key_digest(key) or "", **whose, days=days)
        with _revoked_if_lost(keys, made, _home_option(home)):
            if as_json:
                write_json({"key": key, **_shown(made, made.created_at)})
            else:
                tell(f"{_introduced(made)}; it is shown only now")
                write(key)


@app.command("list", short_help="List the keys.")
def list_(
    *,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this tenant.")] = None,
    home: JournalHome = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {data: [{id, tenant, name, state, …}]}.")] = False,
) -> None:
    """List the keys by tenant: active, expired or revoked. The keys themselves cannot be shown again."""
    with open_journal(home) as engine:
        found = SqlApiKeys(engine).listed(tenant)
    if as_json:
        write_json({"data": [_shown(key, now) for key, now in found]})
    elif found:
        out = console()
        for line in key_table([(key, key.state_at(now)) for key, now in found]):
            out.print(line, soft_wrap=True)
    else:
        tell("no keys")


@app.command(short_help="Revoke a key.")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="Its id, as `list` shows it.", show_default=False)],
    *,
    home: JournalHome = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {id, tenant, name, state, …}.")] = False,
) -> None:
    """Make every gateway refuse a key from now on. Revoking it again changes nothing and also exits with 0."""
    with open_journal(home) as engine:
        found = SqlApiKeys(engine).revoke(key_id)
    if found is None:
        what = "that is a key, not its id" if key_id.startswith(KEY_PREFIX) else f"there is no key {key_id[:64]!r}"
        raise PermanentError(f"{what}: `harness keys list{_home_option(home)}` shows the id of each")
    key, is_new = found
    if as_json:
        write_json(_shown(key, key.created_at))
    else:
        said = "is refused from now on" if is_new else "was revoked already"
        write(plain(f"key {key.id} ({key.name}) of tenant {key.tenant} {said}"))


def _home_option(home: Path | None) -> str:
    return Addresses(load_settings(home=home)).home_option


@contextmanager
def _revoked_if_lost(keys: SqlApiKeys, made: ApiKey, option: str) -> Generator[None]:
    """Revoke a new key if it could not be printed, because nobody would have it."""
    try:
        yield
    except OSError as lost:
        lost_output()  # not reported a second time
        raise PermanentError(f"cannot write the key: {lost.strerror}; {_without_it(keys, made, option)}") from None


def _without_it(keys: SqlApiKeys, made: ApiKey, option: str) -> str:
    try:
        keys.revoke(made.id)
    except HarnessError as wrong:
        return f"nobody has it, and it is not revoked ({wrong}): `harness keys revoke {made.id}{option}` does that"
    return f"so {made.id} is revoked: make another, where there is room for it"


def _introduced(made: ApiKey) -> str:
    until = rfc3339(made.expires_at)
    return f"key {made.id} of tenant {made.tenant}, {f'until {until}' if until else 'until it is revoked'}"


def _shown(key: ApiKey, now: float) -> JsonObject:
    times = {name: rfc3339(getattr(key, name)) for name in ("created_at", "expires_at", "revoked_at")}
    return {"id": key.id, "tenant": key.tenant, "name": key.name, "state": key.state_at(now), **times}
