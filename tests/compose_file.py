"""The compose file as Compose reads it, and its services' commands as they run without containers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import yaml

COMPOSE: Final = Path(__file__).parents[1] / "compose"
DOCKERFILE: Final = COMPOSE / "Dockerfile"
EXAMPLE: Final = COMPOSE / ".env.example"

_VARIABLE: Final = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?:(?P<kind>:-|:\?)(?P<rest>[^}]*))?\})")


class VariableMissing(Exception):  # noqa: N818 - reads as what it says
    """A variable is empty that the compose file insists on."""


def document() -> dict[str, Any]:
    """The file as it stands."""
    return cast("dict[str, Any]", yaml.safe_load((COMPOSE / "compose.yaml").read_text()))


def services(variables: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The services with their variables filled in.

    Args:
        variables: What ``.env`` holds.

    Raises:
        VariableMissing: One with ``:?`` is missing or empty.
    """
    return cast("dict[str, dict[str, Any]]", _filled(document()["services"], variables))


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile and what follows it, in order, continued lines joined."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    lines = [line.partition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return [(instruction, rest.strip()) for instruction, _, rest in lines]


def dockerfile(instruction: str) -> list[str]:
    """What follows each occurrence of an instruction."""
    return [rest for name, rest in instructions() if name == instruction]


def image_environment() -> dict[str, str]:
    """The variables that the image sets."""
    return dict(cast("tuple[str, str]", tuple(line.split("=", 1))) for line in dockerfile("ENV"))


def entrypoint() -> list[str]:
    """The image's program."""
    (last,) = dockerfile("ENTRYPOINT")
    return cast("list[str]", json.loads(last))


def _filled(value: Any, variables: Mapping[str, str]) -> Any:  # noqa: ANN401 - any YAML value
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _value(found, variables), value)
    if isinstance(value, list):
        return [_filled(item, variables) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _filled(item, variables) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found["escaped"]:
        return "$"
    given = variables.get(found["name"], "")
    if not given and found["kind"] == ":?":
        raise VariableMissing(f"{found['name']}: {found['rest']}")
    return given or (found["rest"] or "")


def seconds(duration: str) -> float:
    """A Compose duration such as ``1m30s``."""
    units = {"s": 1, "m": 60, "h": 3600}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)([smh])", duration))
