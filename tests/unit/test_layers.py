"""The layers of the code hold, and each contract that holds them fails when it is broken."""

from __future__ import annotations

import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CONTRACT: Final = re.compile(r"^(.+) (KEPT|BROKEN)$", re.MULTILINE)

WRONG_IMPORTS: Final = {
    "Worker layers point inward": ("harness_worker.core.text", "harness_worker.turn.coordinator"),
    "Gateway layers point inward": ("api_gateway.problems.documents", "api_gateway.streams.sse"),
    "The core, the ports and the turn know no infrastructure": ("harness_worker.ports", "sqlalchemy"),
    "Adapters do not know each other": ("harness_worker.adapters.blobs.store", "harness_worker.adapters.clock"),
    "The gateway sees only what it shares with the worker": (
        "api_gateway.requests.cursors",
        "harness_worker.core.text",
    ),
    "The worker does not know the gateway": ("harness_worker.wire", "api_gateway.requests.cursors"),
    "No package imports in circles": (
        "harness_worker.core.registration.effects",
        "harness_worker.core.registration.tools",
    ),
}
"""For each contract: a module, and what it must not import."""

CIRCLE: Final = "No cycles are allowed in harness_worker.core."
"""How the report names a circle, instead of the import that closes it."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages and their contracts, to be broken."""
    for package in ("harness_worker", "api_gateway"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def _lint(where: Path) -> str:
    command = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None))"
    env = {**os.environ, "COLUMNS": "200"}  # else the report is as wide as the terminal, and breaks names
    ran = subprocess.run(
        [sys.executable, "-c", command], check=False, cwd=where, env=env, capture_output=True, text=True, timeout=100
    )
    assert "Contracts" in ran.stdout, ran.stderr
    return ran.stdout


def _verdicts(report: str) -> dict[str, str]:
    return dict(CONTRACT.findall(report))


def test_layers_hold() -> None:
    """Every contract is kept, and none is left untried below."""
    verdicts = _verdicts(_lint(ROOT))
    assert verdicts == dict.fromkeys(WRONG_IMPORTS, "KEPT")


def test_layers_contracts_fail_when_broken(copy: Path) -> None:
    """A wrong import breaks the contract that forbids it, and the report names that import."""
    for importer, imported in WRONG_IMPORTS.values():
        with (copy / importer.replace(".", "/")).with_suffix(".py").open("a") as source:
            source.write(f"\nimport {imported}\n")
    report = _lint(copy)
    assert _verdicts(report) == dict.fromkeys(WRONG_IMPORTS, "BROKEN")
    for contract, (importer, imported) in WRONG_IMPORTS.items():
        section = _section(report, contract)
        assert f"{importer} -> {imported} (l." in section or CIRCLE in section, contract


def test_gateway_is_forbidden_all_that_its_contract_does_not_name() -> None:
    """A module that is new to the worker is new to the contract too."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (gateway,) = [contract for contract in contracts if contract["id"] == "gateway"]
    modules = {f"harness_worker.{found.name}" for found in pkgutil.iter_modules([str(ROOT / "harness_worker")])}
    shared = "broadcasts celery_apps credentials databases errors schema sessions urls validation variables wire"
    seen = {f"harness_worker.{name}" for name in shared.split()}
    assert set(gateway["forbidden_modules"]) == modules - seen


def _section(report: str, contract: str) -> str:
    """What the report says of one broken contract."""
    return re.split(r"\n\n.+\n-{5,}\n", report.partition(f"\n{contract}\n---")[2])[0]
