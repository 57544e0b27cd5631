"""All checks, in the order in which a person should fix what they find."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from harness_worker.adapters.redis.client import RedisClient
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.doctor import database, services
from harness_worker.entrypoints.doctor.clocks import judge_clocks, skew_s
from harness_worker.entrypoints.doctor.finding import NO_OTHERS, UNASKED, Finding, Probe, State, probe, wrong
from harness_worker.entrypoints.doctor.variables import check_variables, refused_by_gateway
from harness_worker.entrypoints.doctor.workers import Worker, check_catalogue, check_workers, living_workers

_MEND_GATEWAY = "start one: harness up{home}, or harness gateway; or correct HARNESS_GATEWAY_URL"
_MEND_REDIS = "start it, or correct HARNESS_REDIS_URL; `harness up` starts one where none is named"
_MEND_DATABASE = "start it, or correct HARNESS_DATABASE_URL; `harness migrate{home}` makes the tables"
_FEWER = "allow more connections (max_connections, or the limit of the role), or run fewer workers and gateways"
_REDIS_INSTEAD = {
    "No such file": "correct the paths of the files that HARNESS_REDIS_URL names",
    "refused the credentials": "correct the user and the password in HARNESS_REDIS_URL",
    "certificate": "name its CA with ?ssl_ca_certs=FILE in HARNESS_REDIS_URL, or correct the server's certificate",
}
_DATABASE_INSTEAD = {
    "too many connections": _FEWER,
    "too many clients": _FEWER,
    "connection slots": _FEWER,
    "authentication failed": "correct the user and the password in HARNESS_DATABASE_URL",
    "does not exist": "create it, then `harness migrate` makes the tables; or correct the name in HARNESS_DATABASE_URL",
    "unsupported startup parameter": database.MEND_POOLER,
    "unable to open database file": "name a file, in a folder that exists and may be read, in HARNESS_DATABASE_URL",
}
"""Words in an error, and what to do then instead of starting the service."""
_MEND_ARTIFACTS = "make it writable for the workers, or set HARNESS_ARTIFACT_URL"
_MEND_FLEET = "see the lines above"
_MEND_BROKER = "let it answer, and take writes: see the lines above, and what it says"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Everything that was found, in order.

    Args:
        findings: One for each thing that was checked.
        reached_something: Whether any service answered.
    """

    findings: tuple[Finding, ...]
    reached_something: bool

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong; warnings are allowed."""
        return not any(finding.state is State.WRONG for finding in self.findings)


def examine(addresses: Addresses, environment: Mapping[str, str]) -> Examination:
    """Check everything; takes some seconds, or longer if something does not answer."""
    key, home = addresses.settings.gateway_key, addresses.home_option
    mend_gateway = _MEND_GATEWAY.format(home=home)
    gateway = _asked(addresses.gateway_url, "gateway", mend_gateway, lambda url: services.check_gateway(url, key))
    redis = _asked(addresses.redis_url, "redis", _MEND_REDIS, _check_redis, _REDIS_INSTEAD)
    broker = _asked(addresses.broker_url, "broker", "start it, or correct HARNESS_BROKER_URL", services.check_broker)
    sql = _asked(
        addresses.database_url,
        "database",
        _MEND_DATABASE.format(home=home),
        lambda url: database.check_database(url, home),
        _DATABASE_INSTEAD,
    )
    fleet = _fleet(addresses, broker if addresses.broker_url else redis, redis, sql)
    artifacts = _asked(addresses.artifact_url, "artifacts", _MEND_ARTIFACTS, services.check_artifacts)
    seen = (gateway, redis, broker, sql)
    clocks = _clocks(addresses, redis, sql)
    probes = (*seen, clocks, *fleet, artifacts)
    settings = check_variables(environment, refused_by_gateway())
    return Examination(
        findings=(*settings, *_unnamed(addresses), *(each for one in probes for each in one.findings)),
        reached_something=any(one.answered for one in seen),
    )


def _asked(
    url: str | None,
    name: str,
    mend: str,
    check: Callable[[str], Iterable[Finding]],
    instead: Mapping[str, str] = NO_OTHERS,
) -> Probe:
    return UNASKED if url is None else probe(name, mend, lambda: check(url), instead)


def _unnamed(addresses: Addresses) -> Iterator[Finding]:
    """Findings about a missing Redis or database URL. Workers and gateways need both; `harness up` brings its own."""
    for name, url, variable in (
        ("redis", addresses.redis_url, "HARNESS_REDIS_URL"),
        ("database", addresses.database_url, "HARNESS_DATABASE_URL"),
    ):
        if url is None:
            yield wrong(
                name, f"nobody says where it is, and no stack runs in {addresses.settings.home}", f"set {variable}"
            )


def _check_redis(url: str) -> Iterator[Finding]:
    with _redis(url) as client:
        yield from services.check_redis(client, url)


def _clocks(addresses: Addresses, redis: Probe, sql: Probe) -> Probe:
    clocks: dict[str, Callable[[], float]] = {}
    url, database_url = addresses.redis_url, addresses.database_url
    if redis.answered and url is not None:
        clocks["Redis"] = lambda: _redis_time(url)
    if sql.answered and database_url is not None:
        clocks["the database"] = lambda: database.database_time(database_url)
    return probe("clocks", _MEND_FLEET, lambda: judge_clocks({name: skew_s(clock) for name, clock in clocks.items()}))


def _fleet(addresses: Addresses, broker: Probe, redis: Probe, sql: Probe) -> tuple[Probe, ...]:
    """Checks of workers and catalogue, as far as these can be asked."""
    workers: list[Worker] = []

    def ask() -> Iterator[Finding]:
        workers.extend(living_workers(addresses))
        return check_workers(workers, addresses.home_option)

    asked = probe("workers", _MEND_BROKER, ask) if broker.answered and redis.answered else UNASKED
    url = addresses.database_url
    if not sql.answered or url is None:
        return (asked,)
    known = workers if asked.answered else None

    def judged() -> Iterator[Finding]:
        return check_catalogue(database.catalogue(url), known, addresses.home_option)

    mend = _MEND_DATABASE.format(home=addresses.home_option)
    return (asked, probe("catalogue", mend, judged, {"lacks tables": _MEND_FLEET}))


def _redis_time(url: str) -> float:
    with _redis(url) as client:
        client.command("PING")  # connects first, so that only the round trip is measured
        seconds, micros = client.command("TIME")
        return int(seconds) + int(micros) / 1e6


@contextmanager
def _redis(url: str) -> Generator[RedisClient]:
    client = RedisClient(url, socket_timeout_s=services.TIMEOUT_S)
    try:
        yield client
    finally:
        client.disconnect()
