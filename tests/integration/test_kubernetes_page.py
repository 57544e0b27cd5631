"""The page on Kubernetes: its manifests keep the rules, and their commands and probes work outside a cluster."""

from __future__ import annotations

import re
import secrets
import shlex
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import yaml

from api_gateway.config import Settings as GatewaySettings
from harness_worker.adapters.celery.bootsteps import LAST_RESORT_S
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.config import Settings, variable_of
from harness_worker.core.registration.tool_options import MAX_TIMEOUT_S
from harness_worker.testing.postgres import postgres_service
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from tests.integration.test_several_hosts_page import started
from tests.stacks import APP, ROOT, run_harness

Json = dict[str, Any]

PAGE: Final = (ROOT / "docs" / "how-to" / "run-on-kubernetes.md").read_text()
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECRETS, START = [body for kind, body in BLOCK.findall(PAGE) if kind == "sh"]
MANIFESTS: Final[list[Json]] = [
    manifest for kind, body in BLOCK.findall(PAGE) if kind == "yaml" for manifest in yaml.safe_load_all(body)
]
PODS: Final[dict[str, Json]] = {
    pod["containers"][0]["name"]: pod
    for manifest in MANIFESTS
    if (pod := manifest["spec"]["template"]["spec"] if "template" in manifest.get("spec", {}) else None)
}
NOWHERE: Final = "/proc/none"
"""A home that cannot be made, as on a file system that is read-only."""


def container(part: str) -> Json:
    """The only container of a part."""
    (only,) = PODS[part]["containers"]
    return only


def sources() -> dict[str, dict[str, str]]:
    """What the page's secrets and its config map hold, by name."""
    made = SECRETS.replace("\\\n", " ").splitlines()
    kept = {line.split()[4]: dict(re.findall(r"--from-literal (\w+)=(\S+)", line)) for line in made}
    (settings,) = [manifest["data"] for manifest in MANIFESTS if manifest["kind"] == "ConfigMap"]
    return {**{f"secretRef {name}": values for name, values in kept.items()}, "configMapRef harness": settings}


def environment(part: str) -> dict[str, str]:
    """The variables that a part gets from the secrets and the config map that it names."""
    named = [(kind, found["name"]) for source in container(part)["envFrom"] for kind, found in source.items()]
    return {name: value for kind, of in named for name, value in sources()[f"{kind} {of}"].items()}


def test_each_part_gets_settings_that_exist_and_no_secret_of_another() -> None:
    """Claude's key is for coordinators and the webhooks' secret for gateways, as everywhere."""
    known = {variable_of(name) for name in [*Settings.model_fields, *GatewaySettings.model_fields]}
    has = {part: set(environment(part)) for part in PODS}
    assert {name for names in has.values() for name in names} - known == set()
    assert [part for part in PODS if "ANTHROPIC_API_KEY" in has[part]] == ["coordinator"]
    assert [part for part in PODS if "HARNESS_WEBHOOK_SECRET" in has[part]] == ["gateway"]
    assert all({"HARNESS_DATABASE_URL", "HARNESS_REDIS_URL"} <= has[part] for part in PODS)


def test_every_pod_is_hardened_and_runs_one_image() -> None:
    """An unprivileged user, no capabilities, and nothing to write to but ``/tmp``."""
    for part, pod in PODS.items():
        assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 10001}, part
        assert container(part)["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }, part
        assert container(part)["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}], part  # noqa: S108 - a mount
    assert len({container(part)["image"] for part in PODS}) == 1


def test_a_drain_is_never_cut_short() -> None:
    """Kubernetes waits longer than a worker does, and a worker longer than the longest tool."""
    grace_s = float(sources()["configMapRef harness"]["HARNESS_GRACE_S"])
    assert grace_s >= MAX_TIMEOUT_S + LAST_RESORT_S
    before_s = float(container("gateway")["lifecycle"]["preStop"]["exec"]["command"][1])
    assert all(PODS[part]["terminationGracePeriodSeconds"] > grace_s for part in ("coordinator", "tools"))
    assert PODS["gateway"]["terminationGracePeriodSeconds"] > grace_s + before_s


@pytest.mark.timeout(240)  # many processes start, some one after another
def test_parts_start_as_the_page_says(tmp_path: Path) -> None:
    """Each part, with its own variables alone, passes its probe; the page's key and ``doctor`` work in the gateway."""
    port = str(free_port())
    with valkey_service() as redis_url, postgres_service() as postgres, ExitStack() as running:
        here = {
            "HARNESS_DATABASE_URL": postgres.create_database(),
            "HARNESS_REDIS_URL": redis_url,
            "HARNESS_ARTIFACT_URL": (tmp_path / "artifacts").as_uri(),
            "HARNESS_APP": APP,
            "HARNESS_WEBHOOK_SECRET": secrets.token_hex(32),
        }

        def variables(part: str) -> dict[str, str]:
            given = environment(part)
            return {**given, **{name: here[name] for name in given if name in here}, "HARNESS_HOME": NOWHERE}

        def is_ready(part: str) -> bool:
            probe = container(part)["readinessProbe"]
            if "httpGet" in probe:
                url = f"http://127.0.0.1:{port}{probe['httpGet']['path']}"
                return answers(url) and answers(url.replace("readyz", "healthz"))
            command = [argument.replace("/tmp", str(tmp_path / part)) for argument in probe["exec"]["command"]]  # noqa: S108
            return subprocess.run(command, check=False).returncode == 0

        ran = run_harness(*container("migrate")["args"], env=variables("migrate"))
        assert ran.returncode == 0, ran.stderr
        for part in ("gateway", "coordinator", "tools"):
            (tmp_path / part).mkdir()
            arguments = [str(each).replace("/tmp", str(tmp_path / part)) for each in container(part)["args"]]  # noqa: S108
            more = ["--port", port] if part == "gateway" else []
            running.enter_context(started([*arguments, *more], variables(part), tmp_path / f"{part}.log"))
        for part in ("gateway", "coordinator", "tools"):
            wait_until(lambda part=part: is_ready(part), f"{part} to be ready", 60)
        inside = re.findall(r"^kubectl exec deployment/harness-gateway -- harness (.+)$", START, re.MULTILINE)
        create, look = [shlex.split(command) for command in inside]
        assert run_harness(*create, env=variables("gateway")).returncode == 0
        wait_until(lambda: run_harness(*look, env=variables("gateway")).returncode == 0, "doctor to find all well", 60)


def answers(url: str) -> bool:
    """Whether something answers there with success."""
    try:
        return httpx2.get(url, trust_env=False).is_success
    except httpx2.TransportError:
        return False
