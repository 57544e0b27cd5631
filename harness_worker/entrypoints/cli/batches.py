"""``harness batches``: post many turns at once, watch them, stop them, and fetch their results."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from harness_worker.adapters.clock import SystemClock
from harness_worker.client.client import GatewayClient, batch_has_ended
from harness_worker.client.requests import LONGEST_KEY, is_key
from harness_worker.entrypoints.cli.batch_items import items_in, told_by_line, until_ended
from harness_worker.entrypoints.cli.options import (
    After,
    Home,
    PageAsJson,
    PageLimit,
    Quiet,
    Url,
    content_of,
    pairs,
    running_at,
)
from harness_worker.entrypoints.cli.output import write, write_json
from harness_worker.entrypoints.cli.pages import print_page
from harness_worker.entrypoints.cli.standard_streams import tell
from harness_worker.entrypoints.cli.whole_ids import whole_batch_id
from harness_worker.entrypoints.view.batch_lines import batch_facts, batch_table, batch_words
from harness_worker.errors import ConfigError
from harness_worker.wire import JsonObject

Batch: TypeAlias = Annotated[str, typer.Argument(metavar="BATCH", help="Its id, or the end of it.", show_default=False)]

app = typer.Typer(
    no_args_is_help=True,
    help="""Post many turns at once, watch them, stop them, and fetch their results.

    A batch is named by its id, or by the end of its id that `list` shows. All commands talk to the stack at --url, else
    to the one that runs in --home.

    \b
        harness batches create questions.jsonl --agent support --wait
        harness batches list
        harness batches show 9f4ec9b95092
        harness batches results 9f4ec9b95092 > answers.jsonl
        harness batches cancel 9f4ec9b95092
    """,
)


@app.command(short_help="Post the turns of a file.")
def create(  # noqa: PLR0913 - one parameter an option
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The turns, one JSON object per line; - reads stdin.", show_default=False),
    ],
    *,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="The agent for lines that name none.")] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="KEY=VALUE to store with the batch; may be repeated."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="The same key and turns make one batch, however often they are posted in a day."
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all turns have ended.")] = False,
    url: Url = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the batch as the gateway gives it.")] = False,
) -> None:
    """Post the turns of a file, all or none, and print the batch.

    Each line is a JSON object: a name for the turn in the results, and what POST /v1/turns takes.

    \b
        {"custom_id": "late", "params": {"agent": "support", "input": "Where is 1042?"}}

    Exits with 0 once they are stored. With --wait, exits once all have ended: with 0, or with 1 if one did not
    complete.
    """  # noqa: D301 - click reads the \b
    kept = pairs(metadata or [])
    items = items_in(str(file), content_of(file), agent)
    once = None if key is None else _checked(key)
    with running_at(url, home) as client:
        requests = [item.request for item in items]
        with told_by_line(items):
            batch = client.with_patience().create_batch(requests, idempotency_key=once, metadata=kept or None)
        if wait:
            batch = _awaited(client, batch)
    _print(batch, as_json=as_json)
    raise typer.Exit(1 if wait and batch["counts"]["completed"] < batch["total"] else 0)


@app.command("list", short_help="Batches, newest first.")
def list_(
    *,
    limit: PageLimit = 20,
    after: After = None,
    url: Url = None,
    home: Home = None,
    quiet: Quiet = False,
    as_json: PageAsJson = False,
) -> None:
    """Batches, newest first."""
    with running_at(url, home) as client:
        page = client.batches_page(limit=limit, after=after)
    print_page(page, "batches", lambda found, now, _width: batch_table(found, now), quiet=quiet, as_json=as_json)


@app.command(short_help="Show a batch and its progress.")
def show(
    batch: Batch,
    *,
    url: Url = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the batch as the gateway gives it.")] = False,
) -> None:
    """Show a batch and its progress: how many of its turns are in which status, and since when."""
    with running_at(url, home) as client:
        found = client.batch(whole_batch_id(client, batch))
    if as_json:
        write_json(found)
        return
    for line in batch_facts(found):
        write(line)


@app.command(short_help="Print the turns that have ended.")
def results(
    batch: Batch,
    *,
    after: Annotated[
        str, typer.Option(metavar="ID", help="Only turns after the one with this whole id, to continue a download.")
    ] = "",
    url: Url = None,
    home: Home = None,
) -> None:
    """Print the turns of a batch that have ended, in order: {custom_id, turn}, one JSON object per line."""
    with running_at(url, home) as client:
        for line in client.batch_results(whole_batch_id(client, batch), after):
            write_json(line)


@app.command(short_help="Stop the turns that have not ended.")
def cancel(
    batch: Batch,
    *,
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, max=600, help="Seconds to wait for its end.")
    ] = 5.0,
    url: Url = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the batch as it then is.")] = False,
) -> None:
    """Stop the turns of a batch that have not ended: those that run, and those that wait.

    Exits with 0 once all of them have ended, with 1 if one has not yet.
    """
    with running_at(url, home) as client:
        told = client.cancel_batch(whole_batch_id(client, batch))
        ended = until_ended(client, SystemClock(), told, wait_s, lambda _: None)
    _print(ended, as_json=as_json)
    raise typer.Exit(0 if batch_has_ended(ended) else 1)


def _checked(key: str) -> str:
    """A key that a header can hold."""
    if not is_key(key):
        raise ConfigError(f"--key: give 1 to {LONGEST_KEY} characters of ASCII without spaces around them")
    return key


def _awaited(client: GatewayClient, batch: JsonObject) -> JsonObject:
    tell(f"batch {batch['id']}; it goes on without this command")
    return until_ended(client, SystemClock(), batch, math.inf, lambda now: tell(batch_words(now)))


def _print(batch: JsonObject, *, as_json: bool) -> None:
    if as_json:
        write_json(batch)
    else:
        write(f"{batch['id']}  {batch['status']}  {batch_words(batch)}")
