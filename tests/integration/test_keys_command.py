"""``harness keys`` on databases of both kinds, as an operator uses it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import create_engine, select, text, update

from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.credentials import key_digest
from harness_worker.schema import api_keys, db_now
from tests.integration.gateway_kit import sync_engine, sync_url
from tests.stacks import HARNESS, ROOT, UNREAD, run_here

pytestmark = pytest.mark.one_database("sqlite")

DAY_S: Final = 86_400


def keys(url: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The output of ``harness keys …``."""
    ran = run_here("keys", *arguments, env={"HARNESS_DATABASE_URL": url, "COLUMNS": "80"})
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    return ran


def created(url: str, ending: str) -> subprocess.CompletedProcess[str]:
    """The result of ``keys create`` if its output ends this way, as a shell writes it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    line = f"{UNREAD} {shlex.join(HARNESS)} keys create --tenant acme --name x {ending}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        env={**environment, "HARNESS_DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def document(url: str, *arguments: str) -> dict[str, Any]:
    """The output with ``--json``."""
    return json.loads(keys(url, *arguments, "--json").stdout)


def kept(url: str) -> list[Any]:
    """The rows of the table of keys."""
    engine = create_engine(sync_url(url))
    with engine.connect() as connection:
        found: list[Any] = list(connection.execute(select(api_keys)))
    engine.dispose()
    return found


def test_create_prints_the_key_alone_and_keeps_its_digest(database_url: str) -> None:
    """All other words go to stderr, so that ``KEY=$(…)`` works; keys are never equal."""
    made = [
        keys(database_url, "create", "--tenant", "acme", "--name", f"n{days}", *days) for days in ([], ["--days=2"])
    ]
    printed = [ran.stdout for ran in made]
    assert all(re.fullmatch(r"hk_[A-Za-z0-9_-]{43}\n", text) for text in printed)
    assert printed[0] != printed[1]
    assert "of tenant acme, until it is revoked; it is shown only now" in made[0].stderr
    assert re.search(r"until \d{4}-\d\d-\d\dT", made[1].stderr)
    assert not any(text.strip()[3:] in ran.stderr for text, ran in zip(printed, made, strict=True))
    rows = {row.digest: row for row in kept(database_url)}
    assert set(rows) == {key_digest(text.strip()) for text in printed}
    lasting, short = (rows[str(key_digest(text.strip()))] for text in printed)
    assert (lasting.tenant, lasting.expires_at, short.expires_at - short.created_at) == (
        "acme",
        None,
        pytest.approx(2 * DAY_S, abs=5),
    )


@pytest.mark.parametrize("ending", [">/dev/full", ">&9"])
@pytest.mark.parametrize("form", ["", "--json"])
def test_key_that_cannot_be_written_is_revoked(database_url: str, form: str, ending: str) -> None:
    """If the output is lost, the key that nobody has is revoked, and that is said once."""
    ran = created(database_url, f"{form} {ending}")
    (row,) = kept(database_url)
    assert (ran.returncode, ran.stdout, row.revoked_at is None) == (1, "", False)
    (told,) = (line for line in ran.stderr.splitlines() if line.startswith("harness: "))
    assert "cannot write the key: " in told
    assert f"so {row.id} is revoked" in told
    assert "cannot write the output" not in ran.stderr


def test_key_that_is_written_stays_though_its_words_are_lost(sqlite_url: str) -> None:
    """Only the key itself cannot be read anywhere else."""
    ran = created(sqlite_url, "2>/dev/full")
    (row,) = kept(sqlite_url)
    assert (ran.returncode, key_digest(ran.stdout.strip()), row.revoked_at) == (0, row.digest, None)


def test_key_that_is_lost_and_cannot_be_revoked_is_named(sqlite_url: str) -> None:
    """Its id is printed, so that it can be revoked later."""
    engine = create_engine(sync_url(sqlite_url))
    refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON api_keys BEGIN SELECT RAISE(ABORT, 'not now'); END"
    with engine.begin() as connection:
        connection.execute(text(refuse))
    engine.dispose()
    ran = created(sqlite_url, ">/dev/full")
    (row,) = kept(sqlite_url)
    assert (ran.returncode, row.revoked_at) == (1, None)
    assert "not now" in ran.stderr
    assert f"`harness keys revoke {row.id}`" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_list_tells_states_and_no_key(database_url: str) -> None:
    """The list shows active, expired and revoked keys of all tenants or one, without keys or digests."""
    made = [
        document(database_url, "create", "--tenant", each, "--name", "Ü b", "--days", "1") for each in ("b", "a", "a")
    ]
    keys(database_url, "revoke", made[1]["id"])
    engine = sync_engine(database_url)
    with engine.begin() as connection:
        connection.execute(update(api_keys).where(api_keys.c.id == made[2]["id"]).values(expires_at=db_now() - 1))
    engine.dispose()
    told = document(database_url, "list")
    assert [(each["tenant"], each["state"]) for each in told["data"]] == [
        ("a", "revoked"),
        ("a", "expired"),
        ("b", "active"),
    ]
    table = keys(database_url, "list").stdout
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [
        [each["id"], each["state"]] for each in told["data"]
    ]
    for each in made:
        assert not any(part in table + json.dumps(told) for part in (each["key"][3:], str(key_digest(each["key"]))))
    assert [each["id"] for each in document(database_url, "list", "--tenant", "b")["data"]] == [made[0]["id"]]
    nobodys = keys(database_url, "list", "--tenant", "nobody")
    assert (nobodys.stdout, nobodys.stderr) == ("", "no keys\n")


def test_revoke_happens_once_and_may_be_said_again(database_url: str) -> None:
    """The first time of revoking is kept; an unknown id is an error, and a key given instead is not printed."""
    made = document(database_url, "create", "--tenant", "acme", "--name", "x")
    assert "is refused from now on" in keys(database_url, "revoke", made["id"]).stdout
    first = document(database_url, "list")["data"]
    assert "was revoked already" in keys(database_url, "revoke", made["id"]).stdout
    assert document(database_url, "revoke", made["id"]) == first[0]
    assert document(database_url, "list")["data"] == first
    assert "there is no key 'nope': `harness keys list`" in keys(database_url, "revoke", "nope", code=1).stderr
    mistaken = keys(database_url, "revoke", made["key"], code=1)
    assert "that is a key, not its id" in mistaken.stderr
    assert made["key"] not in mistaken.stderr


@pytest.mark.parametrize("wrong", [["--tenant", " a"], ["--tenant", ""], ["--name", "a\nb"], ["--days", "0"]])
def test_create_with_a_wrong_option_makes_nothing(sqlite_url: str, wrong: list[str]) -> None:
    """The exit code is 2, and the message says what is allowed."""
    options = {"--tenant": "acme", "--name": "x", **dict([wrong])}
    refused = keys(sqlite_url, "create", *(part for pair in options.items() for part in pair), code=2)
    assert wrong[0] in refused.stderr
    assert kept(sqlite_url) == []


def test_database_that_has_no_table_of_keys_is_told_with_the_command(tmp_path: Path) -> None:
    """The database may be missing, not migrated, or not answering."""
    missing = keys(f"sqlite:///{tmp_path}/no.db", "list", code=3)
    assert "there is no database at" in missing.stderr
    assert not (tmp_path / "no.db").exists()
    (tmp_path / "empty.db").touch()
    assert "run `harness migrate`" in keys(f"sqlite:///{tmp_path}/empty.db", "list", code=2).stderr
    elsewhere = keys(f"sqlite:///{tmp_path}/empty.db", "list", "--home", str(tmp_path), code=2).stderr
    assert f"run `harness migrate --home {shlex.quote(str(tmp_path))}`" in elsewhere
    away = keys("postgresql://u:hidden@127.0.0.1:1/x", "list", code=3)
    assert "did not answer" in away.stderr
    assert "hidden" not in away.stderr


def test_home_is_where_its_stack_keeps_its_database(tmp_path: Path) -> None:
    """This holds whether the stack runs or not."""
    upgrade(f"sqlite:///{tmp_path}/harness.db")
    made = run_here("keys", "create", "--tenant", "a", "--name", "x", "--home", str(tmp_path))
    assert made.returncode == 0, made.stderr
    assert [row.tenant for row in kept(f"sqlite:///{tmp_path}/harness.db")] == ["a"]


def test_hint_of_a_refused_key_names_the_home(tmp_path: Path) -> None:
    """The command that it names looks into the same database."""
    upgrade(f"sqlite:///{tmp_path}/harness.db")
    ran = run_here("keys", "revoke", "nope", "--home", str(tmp_path))
    assert ran.returncode == 1
    assert f"`harness keys list --home {shlex.quote(str(tmp_path))}` shows the id of each" in ran.stderr


def test_file_that_is_no_database_is_a_wrong_setting(tmp_path: Path) -> None:
    """The exit code is 2, and the message says which setting names the file."""
    (tmp_path / "notes.txt").write_text("no database, though long enough to be looked at\n" * 100)
    ran = keys(f"sqlite:///{tmp_path}/notes.txt", "list", code=2)
    assert "file is not a database" in ran.stderr
    assert "HARNESS_DATABASE_URL" in ran.stderr
