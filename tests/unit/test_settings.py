"""The worker's settings: what is wrong is refused at once, by name, and no password is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kombu import Connection

from harness_worker.config import Settings, load_settings, variable_of
from harness_worker.entrypoints.stack.probes import check_broker
from harness_worker.errors import ConfigError


@pytest.mark.parametrize(
    "url",
    [
        *("redis://h", "redis://h:6379/0", "redis://[::1]:7/0", "redis://:p%40@h"),
        "rediss://u:p@h:6380/1?ssl_cert_reqs=none",
    ],
)
def test_urls_of_redis_are_taken(url: str) -> None:
    """Such a URL is kept as it is."""
    assert load_settings(redis_url=url).redis_url == url


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("rediss://u:p@h:6380/1", "rediss://u:p@h:6380/1?ssl_cert_reqs=required"),
        ("rediss://h?ssl_ca_certs=/c.pem", "rediss://h?ssl_ca_certs=/c.pem&ssl_cert_reqs=required"),
        ("rediss://h; rediss://i", "rediss://h?ssl_cert_reqs=required;rediss://i?ssl_cert_reqs=required"),
    ],
)
def test_certificate_is_checked_unless_the_url_says_otherwise(url: str, taken: str) -> None:
    """Of three clients of Redis, one would check it, one would not, and one would not begin."""
    assert load_settings(broker_url=url).broker_url == taken


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("redis://h:1/0?password=p%40%3Aw", "redis://:p%40%3Aw@h:1/0"),
        ("rediss://u@h?ssl_cert_reqs=none&password=%2F&username=v", "rediss://u:%2F@h?ssl_cert_reqs=none"),
        ("rediss://h?username=u&password=x", "rediss://u:x@h?ssl_cert_reqs=required"),
    ],
)
def test_password_may_stand_in_the_query_of_a_redis(url: str, taken: str) -> None:
    """One of the clients takes it from there, another fails on it: it goes before the host, and what is there wins."""
    settings = load_settings(redis_url=url, broker_url=url)
    assert (settings.redis_url, settings.broker_url) == (taken, taken)
    with Connection(taken) as broker:
        assert "password" in broker.info()


@pytest.mark.parametrize("name", ["redis_url", "broker_url"])
@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("redis://h/0?ssl_cert_reqs=none", "ssl_cert_reqs"),
        ("redis://h?socket_timeout=1&password=x", "socket_timeout"),
        ("rediss://h?ssl_cert_reqs=none&timeout=", "timeout"),
        ("rediss://h?ssl_check_hostname=false", "ssl_check_hostname"),
    ],
)
def test_option_that_a_client_of_redis_does_not_know_is_refused(name: str, url: str, option: str) -> None:
    """Each client knows others: one would fail when it is first used, another would wait for TLS for ever."""
    with pytest.raises(
        ConfigError, match=rf"^HARNESS_{name.upper()}='.*': redis:// takes no options, .*: not {option}$"
    ):
        load_settings(**{name: url})


@pytest.mark.parametrize("name", ["redis_url", "broker_url"])
@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("ssl_cert_reqs=CERT_NONE", "ssl_cert_reqs must be required, optional or none"),
        ("ssl_keyfile=k", "ssl_keyfile needs ssl_certfile"),
    ],
)
def test_option_with_which_a_client_of_redis_fails_is_refused(name: str, option: str, why: str) -> None:
    """When it connects; Celery alone would take the first."""
    with pytest.raises(ConfigError, match=f"{why}$"):
        load_settings(**{name: f"rediss://h?{option}"})


@pytest.mark.parametrize("url", ["unix:///tmp/s", "http://h", "nonsense", "redis:/h", "redis://h:port", "redis://h:0"])
def test_what_no_worker_can_reach_is_refused(url: str) -> None:
    """A worker would try for ever, or stop at an error of its broker's library."""
    with pytest.raises(ConfigError, match=r"^HARNESS_REDIS_URL='.*': give a URL of redis://, rediss://"):
        load_settings(redis_url=url)


@pytest.mark.parametrize("url", ["ftp://h", "h:8000", "http://h:port", "http://", "https://:80/v1"])
@pytest.mark.parametrize("name", ["ANTHROPIC_BASE_URL", "OTEL_EXPORTER_OTLP_ENDPOINT"])
def test_where_nothing_can_be_posted_to_is_refused(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, and not when the first turn is driven or told."""
    monkeypatch.setenv(name, url)
    with pytest.raises(ConfigError, match=rf"^{name}='{url}': give a URL (of http://, https://|with a host)"):
        load_settings()


@pytest.mark.parametrize("url", ["foo", "./artifacts", "C", "file://artifacts", "local://x", "file://", "s3://"])
def test_artifact_store_that_names_no_one_place_is_refused(url: str) -> None:
    """Each process would keep artifacts where it was started, and the gateway would find none; or none could at all."""
    told = rf"^HARNESS_ARTIFACT_URL='{url}': give a URL such as file:///DIR or s3://BUCKET/DIR$"
    with pytest.raises(ConfigError, match=told):
        load_settings(artifact_url=url)


@pytest.mark.parametrize(
    "url", ["/var/artifacts", "~/artifacts", "file:///var/artifacts", "s3://bucket/x", "memory://"]
)
def test_artifact_store_that_is_the_same_everywhere_is_taken(url: str) -> None:
    """As it is."""
    assert load_settings(artifact_url=url).artifact_url == url


def test_artifacts_are_kept_for_a_time_that_ends() -> None:
    """No database could store when the others would expire."""
    with pytest.raises(ConfigError, match=r"^HARNESS_ARTIFACT_TTL_S='inf': "):
        load_settings(artifact_ttl_s="inf")


def test_level_of_logs_may_be_written_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The four names are told to who gives another."""
    monkeypatch.setenv("HARNESS_LOG_LEVEL", " debug ")
    assert load_settings().log_level == "DEBUG"
    told = "^HARNESS_LOG_LEVEL='LOUD': input should be 'DEBUG', 'INFO', 'WARNING' or 'ERROR'$"
    with pytest.raises(ConfigError, match=told):
        load_settings(log_level="loud")


@pytest.mark.parametrize("path", ["abc", "-1", "1/2", "0x1", "\u0661"])
def test_database_of_redis_that_is_no_number_is_refused(path: str) -> None:
    """Of the broker too: one client would raise at it, and another take the first database."""
    for name in ("redis_url", "broker_url"):
        with pytest.raises(ConfigError, match="the database of Redis must be a number"):
            load_settings(**{name: f"redis://h:6379/{path}"})


def test_broker_that_kombu_cannot_read_is_wrong_usage() -> None:
    """Its own words, and which variable."""
    with pytest.raises(ConfigError, match=r"^HARNESS_BROKER_URL=redis\+socket:///s\?virtual_host=abc: Database is int"):
        check_broker("redis+socket:///s?virtual_host=abc")


@pytest.mark.parametrize(
    "url", ["amqp://u:p@h/v", "amqps://h", "pyamqp://h", "redis+socket:///s", "amqp://a:5672;amqp://b:5672"]
)
def test_brokers_that_celery_knows_are_taken(url: str) -> None:
    """RabbitMQ, and Redis however it is reached."""
    assert load_settings(broker_url=url).broker_url == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ampq://user:secret@h/v", "ampq://user:***@h/v"),
        ("ampq://user:se/cret@h/v", "ampq://***@h/v"),
        ("ampq://user:s@e:cret@h/v", "ampq://user:***@h/v"),
        ("redis://h:0/0?password=secret", "redis://h:0/0?password=***"),
        ("redis:/user:secret@h", "redis:/***@h"),
    ],
)
def test_refused_url_shows_no_password(url: str, shown: str) -> None:
    """It may be the real one, with its scheme misspelt, or with a password that should have been escaped."""
    with pytest.raises(ConfigError, match=re.escape(f"HARNESS_BROKER_URL='{shown}': give") + ".*a number$") as refused:
        load_settings(broker_url=url)
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize("sign", ["/", "?", "#"])
@pytest.mark.parametrize("begin", ["redis://:", "redis://:1", "redis://u:se", "amqp://u:se"])
@pytest.mark.parametrize("end", ["cret", "cret=1"])
def test_sign_of_a_password_that_must_be_escaped_is_told(begin: str, sign: str, end: str) -> None:
    """Unescaped it ends the host, which may even be a valid one then; the message shows nothing of the password."""
    told = r"write a / \? or # of its password as %2F, %3F or %23$"
    with pytest.raises(ConfigError, match=told) as refused:
        load_settings(broker_url=f"{begin}{sign}{end}@h:6379/0")
    assert "cret" not in str(refused.value)


def test_part_that_a_url_of_redis_has_not_is_refused_as_such() -> None:
    """It follows the host, so it is no part of a password."""
    told = "HARNESS_REDIS_URL='redis://h/0#cache': leave out what begins with #, which no Redis reads"
    with pytest.raises(ConfigError, match=f"^{re.escape(told)}$"):
        load_settings(redis_url="redis://h/0#cache")


def test_white_space_around_a_value_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read from a file ends in a newline, which a password's, a header's or a URL's reader would repeat."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", " sk-ant-fake\r\n")
    monkeypatch.setenv("HARNESS_FLOWER_AUTH", "me:word\n")
    monkeypatch.setenv("HARNESS_TRACE_CONTENT", "true\n")
    for name, url in {"DATABASE": "postgresql://u:p@h/d", "REDIS": "redis://u:p@h/0", "ARTIFACT": "s3://b"}.items():
        monkeypatch.setenv(f"HARNESS_{name}_URL", f"{url}\n")
    settings = load_settings()
    secrets = (settings.anthropic_api_key, settings.flower_auth)
    assert [secret and secret.get_secret_value() for secret in secrets] == ["sk-ant-fake", "me:word"]
    urls = (settings.database_url, settings.redis_url, settings.artifact_url)
    assert urls == ("postgresql://u:p@h/d", "redis://u:p@h/0", "s3://b")
    assert settings.trace_content


@pytest.mark.parametrize(("given", "home"), {".": ".", " data\n": "data"}.items())
def test_home_is_the_working_directory_if_it_is_named(given: str, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative homes begin there."""
    monkeypatch.setenv("HARNESS_HOME", given)
    assert load_settings().home == Path(home)


@pytest.mark.parametrize("blank", ["", " ", " \n"])
@pytest.mark.parametrize("field", sorted(Settings.model_fields))
def test_blank_variable_counts_as_unset(field: str, blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from an empty file, or a shell's variable that is not set: the default holds, whatever the setting is."""
    monkeypatch.delenv(variable_of(field), raising=False)
    usual = load_settings()
    monkeypatch.setenv(variable_of(field), blank)
    assert load_settings() == usual
    assert load_settings(**{field: blank}) == usual


def test_api_key_is_one_that_a_header_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be sent is refused before it is tried; no message shows it, nor any other secret."""
    for given, key in {"hk_abc": "hk_abc", " hk_abc\n": "hk_abc", "": None, "\n": None}.items():
        monkeypatch.setenv("HARNESS_API_KEY", given)
        settings = load_settings()
        assert settings.gateway_key == key
        assert "hk_abc" not in repr(settings)
    for given in ("hk_a b", "hk_ä", "hk_a\x7f"):
        with pytest.raises(ConfigError, match=r"^HARNESS_API_KEY=\*\*\*: must be visible characters of ASCII"):
            load_settings(api_key=given)


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "HARNESS_API_KEY", "HARNESS_FLOWER_AUTH"])
def test_secret_that_is_no_text_is_not_shown(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in another encoding than UTF-8 may have held it; what can be read of it is secret all the same."""
    monkeypatch.setenv(variable, "hidden\udce4")
    with pytest.raises(ConfigError, match=rf"^{variable}=\*\*\*: "):
        load_settings()


def test_heartbeat_that_comes_too_late_for_the_lease_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A healthy write would be told as lost; both variables are named, and nothing else that is set is shown."""
    assert load_settings(heartbeat_s=30.0, lease_ttl_s=60.0).heartbeat_s == 30.0
    monkeypatch.setenv("HARNESS_HEARTBEAT_S", "60")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    with pytest.raises(ConfigError) as refused:
        load_settings()
    named = "HARNESS_HEARTBEAT_S=60: must be at most 3, half of HARNESS_LEASE_TTL_S=6,"
    assert str(refused.value) == f"{named} or calls that run well are taken for lost"


@pytest.mark.parametrize("secret", ["hidden", "hidden-but-of-enough-characters hidden"])
def test_weak_webhook_secret_is_refused_and_not_shown(secret: str) -> None:
    """The first process that reads the setting refuses it."""
    with pytest.raises(ConfigError, match=r"^HARNESS_WEBHOOK_SECRET=\*\*\*: give one secret") as refused:
        load_settings(webhook_secret=secret)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://h/x?own=hidden", "http://h/#hidden", "http://h?"])
def test_root_of_a_collector_has_no_query(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is added to it, which would become a part of the query; its value may be a key, and is not shown."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    told = r"^OTEL_EXPORTER_OTLP_ENDPOINT: must have neither \? nor #, .* OTEL_EXPORTER_OTLP_HEADERS, or .*ENDPOINT$"
    with pytest.raises(ConfigError, match=told) as refused:
        load_settings()
    assert "hidden" not in str(refused.value)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    assert load_settings(otlp_traces_endpoint=url).traces_url == url
