"""``harness webhooks secret``: what receivers verify with, from where the gateway has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness_worker.entrypoints.stack.home import Home
from harness_worker.wire import tenant_webhook_secret
from tests.stacks import run_harness

NEW = "the-newest-secret-of-the-operator"
OLD = "an-older-secret-of-the-operator"


def test_secret_follows_from_the_newest_that_is_set(tmp_path: Path) -> None:
    """It stands alone, so that a variable can take it; each tenant has its own."""
    env = {"HARNESS_WEBHOOK_SECRET": f"{NEW} {OLD}", "HARNESS_HOME": str(tmp_path)}
    plain = run_harness("webhooks", "secret", env=env)
    assert (plain.returncode, plain.stderr) == (0, "")
    assert plain.stdout == tenant_webhook_secret(NEW, "default") + "\n"
    others = run_harness("webhooks", "secret", "--tenant", "acme", "--json", env=env)
    assert json.loads(others.stdout) == {"tenant": "acme", "secret": tenant_webhook_secret(NEW, "acme")}


def test_secret_of_a_home_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    """`harness up` makes it; what is set wins over it."""
    home = Home(tmp_path / "home")
    home.prepare()
    assert home.kept_webhook_secret() is None
    made = home.webhook_secret()
    assert made == home.webhook_secret() == home.kept_webhook_secret()
    (file,) = [found for found in home.path.iterdir() if found.is_file()]
    assert file.stat().st_mode & 0o777 == 0o600
    told = run_harness("webhooks", "secret", "--home", str(home.path), env={"HARNESS_WEBHOOK_SECRET": ""})
    assert told.stdout.strip() == tenant_webhook_secret(made, "default")


@pytest.mark.parametrize(
    ("secret", "said"), [("", "never ran in"), ("hidden", "HARNESS_WEBHOOK_SECRET=***: value error, give one secret")]
)
def test_secret_that_is_not_there_says_what_to_do(tmp_path: Path, secret: str, said: str) -> None:
    """With the exit code of wrong usage."""
    told = run_harness("webhooks", "secret", env={"HARNESS_WEBHOOK_SECRET": secret, "HARNESS_HOME": str(tmp_path)})
    assert (told.returncode, told.stdout) == (2, "")
    assert said in told.stderr
    assert "HARNESS_WEBHOOK_SECRET" in told.stderr
    assert "hidden" not in told.stderr


def test_tenant_that_could_have_no_key_is_refused() -> None:
    """A blank at the end would give a secret that verifies nothing."""
    told = run_harness("webhooks", "secret", "--tenant", "acme ", env={"HARNESS_WEBHOOK_SECRET": NEW})
    assert (told.returncode, told.stdout) == (2, "")
    assert "--tenant 'acme '" in told.stderr
