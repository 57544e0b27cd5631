"""Commands begin soon: those that only ask the gateway load nothing of a worker, and none collects garbage first."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from harness_worker.entrypoints.cli.gateway import GatewayConfig
from harness_worker.entrypoints.loading import loading
from harness_worker.entrypoints.messages import INTERRUPTED

HEAVY = ("celery", "psycopg", "redis", "sqlalchemy", "harness_worker.ports", "harness_worker.turn")


@pytest.mark.parametrize("command", ["turns", "batches", "usage", "agents", "run"])
def test_command_of_a_client_loads_nothing_of_a_worker(command: str) -> None:
    """What it imports is what it needs."""
    asked = f"import sys, harness_worker.entrypoints.cli.{command}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in HEAVY if name in loaded] == []


def test_client_of_other_services_loads_nothing_of_a_worker() -> None:
    """Nor of FastAPI or Typer: it needs HTTP and settings."""
    asked = "import sys; from harness_worker import GatewayClient; GatewayClient(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in (*HEAVY, "fastapi", "typer", "harness_worker.core") if name in loaded] == []


@pytest.mark.parametrize(
    ("url", "verifies"), [("http://127.0.0.1:1", False), ("HTTPS://127.0.0.1:1", True), ("http://far", True)]
)
def test_client_loads_authorities_only_if_it_may_have_to_verify_a_server(*, url: str, verifies: bool) -> None:
    """Not for a gateway on this machine, which commands mostly ask; another host may have to be asked by a proxy."""
    asked = f"""if True:
        import gc, ssl
        from harness_worker.client.client import GatewayClient
        client = GatewayClient("{url}")
        contexts = [each for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]
        print(*(context.verify_mode == ssl.CERT_REQUIRED for context in contexts))
    """
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert said, "there is a context of TLS"
    assert (str(True) in said) is verifies


@pytest.mark.parametrize("command", ["worker", "gateway"])
def test_command_is_loaded_without_looking_for_garbage(command: str) -> None:
    """What is loaded lives on: looking through all of it again and again took a fifth of a start."""
    asked = f"""if True:
        import gc, sys
        from harness_worker.entrypoints.cli import main
        sys.argv = ["harness", "{command}", "--help"]
        main()
        print(*(generation["collections"] for generation in gc.get_stats()[1:]))
    """
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    younger, oldest = map(int, said.splitlines()[-1].split())
    assert younger < 5
    assert oldest == 0


def test_gateway_is_made_without_looking_for_garbage() -> None:
    """Its routes and their models are many."""
    seen: list[bool] = []
    GatewayConfig(lambda: seen.append(gc.isenabled()), factory=True, log_config=None).load()
    gc.unfreeze()
    assert seen == [False]


def test_garbage_is_looked_for_once_a_module_is_loaded_or_not() -> None:
    """A process that serves for long has to; what is loaded by then is left out."""
    with pytest.raises(ImportError), loading():
        raise ImportError
    kept = gc.get_freeze_count()
    gc.unfreeze()
    assert gc.isenabled()
    assert kept > 0


def test_interrupt_while_a_module_is_loaded_is_never_lost() -> None:
    """An exception would be, in a callback such as those of the import system: a worker went on for ever."""
    asked = """if True:
        import os, signal, weakref
        from harness_worker.entrypoints.loading import loading
        class Module: pass
        module = Module()
        loaded = weakref.ref(module, lambda _: os.kill(os.getpid(), signal.SIGINT))
        with loading():
            del module
        print("goes on")
    """
    ended = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, "", "")
