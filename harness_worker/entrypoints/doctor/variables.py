"""Variables that look like settings and are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from harness_worker.config import PREFIX, Settings, variable_of
from harness_worker.entrypoints.doctor.finding import Finding, ok, warning

GATEWAY_ONLY: Final = frozenset(
    {
        "HARNESS_DEV_KEYLESS",
        "HARNESS_BODY_IDLE_S",
        "HARNESS_MAX_BODY_BYTES",
        "HARNESS_PUBLISH_TIMEOUT_S",
        "HARNESS_SSE_HEARTBEAT_S",
        "HARNESS_TENANT_BUDGET",
        "HARNESS_WEBHOOK_PRIVATE",
        "HARNESS_TENANT_DOLLARS",
        "HARNESS_TENANT_QUEUE",
        "HARNESS_TENANT_RATE",
    }
)
"""Settings of the gateway that the worker does not have; it cannot ask, for it does not know the gateway."""

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
    """Every variable that means something."""
    return frozenset(map(variable_of, Settings.model_fields)) | GATEWAY_ONLY | FOR_TESTS


def check_variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    """One finding for each unknown variable, or one that says that there is none."""
    known = known_variables()
    given = sorted(name for name in environment if name.startswith(PREFIX))
    unknown = [name for name in given if name not in known]
    for name in unknown:
        yield warning(_NAME, f"{name} is set, and no setting has that name", _mend(name, known))
    if not unknown:
        yield ok(_NAME, ", ".join(given) if given else "none set; every default holds")


def _mend(name: str, known: frozenset[str]) -> str:
    names = sorted(each.removeprefix(PREFIX) for each in known if each.startswith(PREFIX))
    near = get_close_matches(name.removeprefix(PREFIX), names, n=1)
    return f"did you mean {PREFIX}{near[0]}?" if near else "unset it; docs/reference/settings.md lists those there are"
