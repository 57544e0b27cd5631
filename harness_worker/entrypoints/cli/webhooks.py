"""``harness webhooks``: what receivers of webhooks need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness_worker.config import Settings, load_settings
from harness_worker.core.api_keys import checked_name
from harness_worker.credentials import tenant_webhook_secret, webhook_secrets
from harness_worker.entrypoints.cli.output import write, write_json
from harness_worker.entrypoints.stack.home import Home
from harness_worker.errors import ConfigError
from harness_worker.wire import DEFAULT_TENANT

app = typer.Typer(no_args_is_help=True, help="Show what receivers of webhooks need.")


@app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction] - a single command would be no group
    pass


@app.command(short_help="Print the secret that receivers verify with.")
def secret(
    *,
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Whose webhooks it verifies.")] = DEFAULT_TENANT,
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where `harness up` keeps one, if none is set. [env: HARNESS_HOME]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {tenant, secret}.")] = False,
) -> None:
    """Print the secret with which a receiver verifies that a webhook is genuine.

    Give it only to the receiver: anybody who has it can sign webhooks as that tenant.

    \b
        export WEBHOOK_SECRET=$(harness webhooks secret)
    """  # noqa: D301 - click reads the \b
    newest, *_ = webhook_secrets(_operators(load_settings(home=home)))
    derived = tenant_webhook_secret(newest, checked_name(tenant, "--tenant"))
    if as_json:
        write_json({"tenant": tenant, "secret": derived})
    else:
        write(derived)


def _operators(settings: Settings) -> str:
    if settings.webhook_secret is not None:
        return settings.webhook_secret.get_secret_value()
    kept = Home(settings.home).kept_webhook_secret()
    if kept is None:
        raise ConfigError(
            f"HARNESS_WEBHOOK_SECRET is not set, and `harness up` has kept none in {settings.home}: "
            "set it as it is set for the gateway, or name the home of a stack with --home"
        )
    return kept
