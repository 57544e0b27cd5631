"""The compose file and its image: valid, hardened, and without any password of their own."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any, Final

import jsonschema_rs
import pytest

from harness_worker.adapters.celery.bootsteps import LAST_RESORT_S
from harness_worker.config import Settings
from harness_worker.core.registration.tool_options import MAX_TIMEOUT_S
from harness_worker.entrypoints.worker.roles import Role
from tests.compose_file import (
    COMPOSE,
    DOCKERFILE,
    EXAMPLE,
    VariableMissing,
    dockerfile,
    document,
    instructions,
    seconds,
    services,
)

SECRETS: Final = {"POSTGRES_PASSWORD": "p", "VALKEY_PASSWORD": "v", "HARNESS_FLOWER_AUTH": "a:b"}
OURS: Final = ("migrate", "gateway", "coordinator", "tools", "flower")
SERVICES: Final = services(SECRETS)

each_service = pytest.mark.parametrize("name", list(SERVICES))


def complaints(of: dict[str, Any]) -> list[str]:
    """What the Compose specification's schema, as ``check-jsonschema`` ships it, finds wrong."""
    schema = files("check_jsonschema").joinpath("builtin_schemas", "vendor", "compose-spec.json").read_text()
    return [error.message for error in jsonschema_rs.validator_for(json.loads(schema)).iter_errors(of)]


def test_compose_file_fits_the_specification() -> None:
    """The file is valid by the schema, which finds a key that does not exist."""
    assert complaints(document()) == []
    wrong = document()
    wrong["services"]["tools"]["stop_grace_time"] = "30s"
    assert complaints(wrong) != []


def test_compose_file_has_every_part() -> None:
    """Everything that the harness needs is a service."""
    assert set(SERVICES) == {"valkey", "postgres", *OURS}


def test_readme_gives_an_image_of_ones_own_to_whoever_runs_agents() -> None:
    """To each of them, and without a build, which would give that image's name to the harness's own."""
    (override,) = re.findall(r"^```yaml\n(.*?)^```$", (COMPOSE / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    told = re.findall(r"^  (\w+):\n    image: (\S+)\n    build: !reset null", override, re.MULTILINE)
    run_agents = [name for name in OURS if "HARNESS_APP" in SERVICES[name].get("environment", {})]
    assert told == [(name, "my-agents:local") for name in run_agents]


@each_service
def test_service_is_hardened(name: str) -> None:
    """It writes only where it must, as an ordinary user, and can become nobody else."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] not in ("", "root", "0", "0:0")
    assert any(mount.startswith("/tmp") for mount in service["tmpfs"])  # noqa: S108 - a mount in a container
    assert not {"privileged", "cap_add", "pid", "network_mode", "devices", "container_name"} & set(service)


@each_service
def test_service_is_restarted_and_checked(name: str) -> None:
    """It comes back by itself and says how it is; the migration runs once."""
    service = SERVICES[name]
    is_one_shot = name == "migrate"
    assert service["restart"] == ("no" if is_one_shot else "unless-stopped")
    assert ("healthcheck" in service) is not is_one_shot


@each_service
def test_service_is_published_on_loopback_alone(name: str) -> None:
    """Nothing is published but the gateway and Flower, and these to the host itself."""
    ports = SERVICES[name].get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert bool(ports) is (name in ("gateway", "flower"))


def test_databases_are_on_the_internal_network_alone() -> None:
    """Valkey and Postgres reach nothing outside, and nothing outside reaches them."""
    assert document()["networks"]["inside"] == {"internal": True}
    assert SERVICES["valkey"]["networks"] == SERVICES["postgres"]["networks"] == ["inside"]


def test_databases_keep_their_data_in_named_volumes() -> None:
    """Data outlives containers."""
    mounts = [mount.split(":")[0] for name in ("valkey", "postgres", "tools") for mount in SERVICES[name]["volumes"]]
    assert mounts == ["valkey", "postgres", "data"]
    assert set(mounts) == set(document()["volumes"])


@pytest.mark.parametrize("name", OURS)
def test_drain_is_not_cut_short(name: str) -> None:
    """A container is given longer than what runs in it takes to drain."""
    service = SERVICES[name]
    assert seconds(service["stop_grace_period"]) >= float(service["environment"]["HARNESS_GRACE_S"]) + 5


def test_drain_of_the_workers_outlasts_the_longest_tool() -> None:
    """A write that may not run twice is not cut short by it."""
    graces = [float(SERVICES[role]["environment"]["HARNESS_GRACE_S"]) for role in Role]
    assert min(graces) >= MAX_TIMEOUT_S + LAST_RESORT_S


@pytest.mark.parametrize("name", [name for name in OURS if name != "migrate"])
def test_service_waits_for_the_tables(name: str) -> None:
    """Nothing of ours starts before the database is migrated."""
    conditions = {on: how["condition"] for on, how in SERVICES[name]["depends_on"].items()}
    assert conditions == {"valkey": "service_healthy", "migrate": "service_completed_successfully"}
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}


@pytest.mark.parametrize("missing", list(SECRETS))
def test_no_password_has_a_default(missing: str) -> None:
    """Without each secret, nothing starts; the message says where to set it."""
    with pytest.raises(VariableMissing, match=rf"{missing}: set .*compose/\.env"):
        services({**SECRETS, missing: ""})


def test_example_names_every_variable_and_no_secret() -> None:
    """The example file has each variable that the compose file reads; secrets are empty in it."""
    text = (COMPOSE / "compose.yaml").read_text()
    passed_on = re.findall(r"^      ([A-Z_]+):(?: #.*)?$", text, re.MULTILINE)
    read = {*re.findall(r"(?<!\$)\$\{(\w+)", text), *passed_on}
    lines = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", EXAMPLE.read_text(), re.MULTILINE))
    assert set(lines) == read
    assert [lines[name] for name in SECRETS] == ["", "", ""]


@pytest.mark.parametrize("name", OURS)
def test_environment_names_settings_that_exist(name: str) -> None:
    """Each variable of ours is a setting of the worker or of the gateway; unknown ones would be ignored silently."""
    known = {f"HARNESS_{field.upper()}" for field in Settings.model_fields} | {"HARNESS_DEV_KEYLESS"}
    assert {key for key in SERVICES[name]["environment"] if key.startswith("HARNESS_")} <= known


def test_gateway_stays_closed_unless_told() -> None:
    """Keyless use is off by default."""
    assert SERVICES["gateway"]["environment"]["HARNESS_DEV_KEYLESS"] == "0"


def test_image_runs_as_the_user_of_the_services() -> None:
    """The image's user is no root, the same as in the file, and owns what volumes take over."""
    (user,) = dockerfile("USER")
    assert user == "10001:10001"
    assert {SERVICES[name]["user"] for name in OURS} == {user}
    assert "--owner 10001 --group 10001 /app /data" in " ".join(dockerfile("RUN"))


def test_edit_of_the_code_rebuilds_no_dependency() -> None:
    """Their wheels are built from the declarations and the versions alone, before anything else is copied."""
    build = next(number for number, (name, _) in enumerate(instructions()) if name == "RUN")
    copied = [source for name, rest in instructions()[:build] if name == "COPY" for source in rest.split()[:-1]]
    assert copied == [".ci/constraints.txt", "pyproject.toml"]
    dependencies, project, install = dockerfile("RUN")[:3]
    assert "--no-deps" not in dependencies
    assert "--no-deps" in project
    extras = {step[step.index("[") :].rstrip("'") for step in (dependencies, install)}
    assert extras == {"[mcp,otel,s3]"}


def test_image_is_built_from_what_is_there_at_pinned_versions() -> None:
    """Each file it copies exists and is let through, versions are the tested ones, and no registry is named."""
    root = COMPOSE.parent
    copied = [source for line in dockerfile("COPY") for source in line.split()[:-1]]
    allowed = {
        line[1:].removesuffix("/**")
        for line in (COMPOSE / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert set(copied) == allowed
    assert [source for source in copied if not (root / source).exists()] == []
    assert "--constraint .ci/constraints.txt" in dockerfile("RUN")[0]
    assert {line.split(" AS ")[0] for line in dockerfile("FROM")} == {"python:3.12-slim"}
    assert "://" not in DOCKERFILE.read_text()
    images = [service["image"] for service in SERVICES.values()]
    assert not [image for image in images if "." in image.split("/")[0] and "/" in image]
