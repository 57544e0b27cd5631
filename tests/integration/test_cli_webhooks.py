"""``harness webhooks secret`` prints the secret by which receivers verify webhooks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness_worker.credentials import tenant_webhook_secret
from harness_worker.entrypoints.stack.home import Home
from tests.stacks import APP, run_harness, run_here

NEW = "the-newest-secret-of-the-operator"
OLD = "an-older-secret-of-the-operator"


def test_secret_follows_from_the_newest_that_is_set(tmp_path: Path) -> None:
    """Only the secret is printed, so that a shell variable can take it; each tenant has its own."""
    env = {"HARNESS_WEBHOOK_SECRET": f"{NEW} {OLD}", "HARNESS_HOME": str(tmp_path)}
    plain = run_here("webhooks", "secret", env=env)
    assert (plain.returncode, plain.stderr) == (0, "")
    assert plain.stdout == tenant_webhook_secret(NEW, "default") + "\n"
    others = run_here("webhooks", "secret", "--tenant", "acme", "--json", env=env)
    assert json.loads(others.stdout) == {"tenant": "acme", "secret": tenant_webhook_secret(NEW, "acme")}


def test_secret_of_a_home_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    """``harness up`` makes the secret; one that is set takes precedence."""
    home = Home(tmp_path / "home")
    home.prepare()
    assert home.kept_webhook_secret() is None
    made = home.webhook_secret()
    assert made == home.webhook_secret() == home.kept_webhook_secret()
    (file,) = [found for found in home.path.iterdir() if found.is_file()]
    assert file.stat().st_mode & 0o777 == 0o600
    told = run_here("webhooks", "secret", "--home", str(home.path), env={"HARNESS_WEBHOOK_SECRET": ""})
    assert told.stdout.strip() == tenant_webhook_secret(made, "default")


@pytest.mark.parametrize("content", [b"", b" \n"], ids=["empty", "blank"])
def test_secret_whose_file_is_empty_is_made_anew(tmp_path: Path, content: bytes) -> None:
    """A loss of power may leave an empty file; nothing can be verified with it, and the next stack makes a secret."""
    (tmp_path / "webhook_secret").write_bytes(content)
    told = run_here("webhooks", "secret", "--home", str(tmp_path), env={"HARNESS_WEBHOOK_SECRET": ""})
    assert (told.returncode, told.stdout) == (2, "")
    assert "has kept none in" in told.stderr
    home = Home(tmp_path)
    made = home.webhook_secret()
    assert len(made) == 64
    assert home.kept_webhook_secret() == made


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfehidden" * 8, b"\0" * 65, b"hidden", b"hidden-and-long-enough-\x1b-to-be-a-secret"],
    ids=["no text", "zeros", "short", "control character"],
)
def test_secret_whose_file_holds_none_is_wrong_usage(tmp_path: Path, content: bytes) -> None:
    """The command and the stack both refuse it; the file is named and kept, and nothing of it is shown."""
    file = tmp_path / "webhook_secret"
    file.write_bytes(content)
    env = {"HARNESS_WEBHOOK_SECRET": "", "HARNESS_HOME": str(tmp_path), "HARNESS_APP": APP}
    for told in (run_here("webhooks", "secret", env=env), run_harness("up", "--port", "0", env=env)):
        assert (told.returncode, told.stdout) == (2, ""), told.stderr
        assert f"harness: {file} holds no secret for webhooks" in told.stderr
        assert "hidden" not in told.stderr
    assert file.read_bytes() == content


def test_private_file_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a loss of power the file has the old content or the new, and is never empty."""
    file = tmp_path / "file"
    synced: list[tuple[int, bool]] = []

    def watched(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_size, file.exists()))

    monkeypatch.setattr(os, "fsync", watched)
    Home(tmp_path).write_private(file, "secret\n")
    assert (synced, file.read_text()) == ([(7, False)], "secret\n")


@pytest.mark.parametrize(
    ("secret", "said"),
    [("", "has kept none in"), ("hidden", "HARNESS_WEBHOOK_SECRET=***: give one secret")],
)
def test_secret_that_is_not_there_says_what_to_do(tmp_path: Path, secret: str, said: str) -> None:
    """The exit code is that of wrong usage."""
    told = run_here("webhooks", "secret", env={"HARNESS_WEBHOOK_SECRET": secret, "HARNESS_HOME": str(tmp_path)})
    assert (told.returncode, told.stdout) == (2, "")
    assert said in told.stderr
    assert "HARNESS_WEBHOOK_SECRET" in told.stderr
    assert "hidden" not in told.stderr


def test_tenant_that_could_have_no_key_is_refused() -> None:
    """A blank at the end, for example, would give a secret that verifies nothing."""
    told = run_here("webhooks", "secret", "--tenant", "acme ", env={"HARNESS_WEBHOOK_SECRET": NEW})
    assert (told.returncode, told.stdout) == (2, "")
    assert "--tenant 'acme '" in told.stderr
