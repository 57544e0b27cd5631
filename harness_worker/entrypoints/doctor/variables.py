"""Checks for variables that look like settings but are none, and for settings that only the gateway refuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

from harness_worker.config import Settings, variable_of
from harness_worker.entrypoints.doctor.finding import Finding, ok, warning, wrong
from harness_worker.entrypoints.loading import loading
from harness_worker.errors import ConfigError
from harness_worker.variables import PREFIX

_GATEWAY_CONFIG: Final = "api_gateway.config"
"""Loaded by name, because the worker package never imports the gateway."""

_ELSEWHERE: Final = {"database_url": "sqlite:///unasked", "redis_url": "redis://unasked"}
"""Stand-ins for settings that have checks of their own."""

FOR_TESTS: Final = frozenset(
    {
        "HARNESS_TEST_REDIS_URL",
        "HARNESS_TEST_DATABASE_URL",
        "HARNESS_TEST_SEEDS",
        "HARNESS_TEST_FIRST_SEED",
        "HARNESS_TEST_IMAGES",
    }
)

_NAME: Final = "settings"


def known_variables() -> frozenset[str]:
    """Every variable that is a setting."""
    of_gateway = _gateway_config().Settings.model_fields
    return frozenset(map(variable_of, (*Settings.model_fields, *of_gateway))) | FOR_TESTS


def refused_by_gateway() -> tuple[str, ...]:
    """The gateway's complaints about its settings in this process's environment, if it would not start with them."""
    try:
        _gateway_config().load_settings(**_ELSEWHERE)
    except ConfigError as refused:
        return tuple(str(refused).splitlines())
    return ()


def check_variables(environment: Mapping[str, str], refused: Iterable[str] = ()) -> Iterator[Finding]:
    """One finding for each variable that is unknown or refused, or one that says that there are none."""
    known = known_variables()
    given = sorted(name for name in environment if name.startswith(PREFIX))
    found = [_unknown(name, known) for name in given if name not in known]
    found += [wrong(_NAME, said, "correct or unset it: no gateway starts with it") for said in refused]
    yield from found or [ok(_NAME, ", ".join(given) if given else "none set; every default holds")]


def _gateway_config() -> Any:  # noqa: ANN401 - a module that the worker package never imports
    with loading():
        return import_module(_GATEWAY_CONFIG)


def _unknown(name: str, known: frozenset[str]) -> Finding:
    return warning(_NAME, f"{name} is set, and no setting has that name", _mend(name, known))


def _mend(name: str, known: frozenset[str]) -> str:
    names = sorted(each.removeprefix(PREFIX) for each in known if each.startswith(PREFIX))
    near = get_close_matches(name.removeprefix(PREFIX), names, n=1)
    return f"did you mean {PREFIX}{near[0]}?" if near else "unset it; docs/reference/settings.md lists those there are"
