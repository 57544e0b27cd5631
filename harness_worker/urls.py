"""URLs of services: writing and checking them, and showing them without secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

REDIS_SCHEMES: Final = ("redis", "rediss")
HTTP_SCHEMES: Final = ("http", "https")
BROKER_SCHEMES: Final = (*REDIS_SCHEMES, "redis+socket", "amqp", "amqps", "pyamqp")

_HTTP: Final = tuple(f"{scheme}://" for scheme in HTTP_SCHEMES)
_REDIS: Final = tuple(f"{scheme}://" for scheme in REDIS_SCHEMES)
_REDIS_DB: Final = re.compile(r"/*[0-9]*/*")
"""The path of a Redis URL. Some clients raise on any other, others silently use the first database."""

_ESCAPING: Final = "write a / ? or # of its password as %2F, %3F or %23"
_USER_FIELDS: Final = frozenset({"username", "password"})
_CHECKS: Final = "ssl_cert_reqs"
_TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", _CHECKS)


def in_url(path: Path) -> str:
    """The path as it is written in the URL of an SQLite database."""
    return str(path).replace("%", "%25").replace("?", "%3F")


def service_url(url: str, schemes: Sequence[str]) -> str:
    """``url``, checked and completed so that all clients understand it in the same way.

    For a Redis over TLS, it says that the certificate is checked, unless ``url`` says otherwise. Without that, redis-py
    would check it, kombu would not, and Celery would refuse to start. User and password in the query of a Redis URL are
    moved before its host: redis-py accepts them in the query, kombu fails on them.

    Raises:
        ValueError: It is not a URL, has none of these schemes, or lacks a part; the message says what to give.
    """
    known = tuple(f"{scheme}://" for scheme in schemes)
    try:
        is_one = url.startswith(known) and urlsplit(url).port != 0
    except ValueError:
        is_one = False
    if not is_one:
        advice = f"; {_ESCAPING}" if "@" in url and url.startswith(known) else ""
        raise ValueError(f"give a URL of {', '.join(known)}, with a port that is a number{advice}")
    if url.startswith(_HTTP) and not host_of(url):
        raise ValueError("give a URL with a host, as in https://HOST")
    if url.startswith(_REDIS):
        _check_database(url)
        url = _user_first(url)
        _check_options(url)
    if url.startswith("rediss://") and _CHECKS not in parse_qs(urlsplit(url).query, keep_blank_values=True):
        return f"{url}{'&' if '?' in url else '?'}{_CHECKS}=required"
    return url


def _check_database(url: str) -> None:
    """Refuse a URL of Redis whose path is not the number of a database.

    Raises:
        ValueError: It is not, perhaps because a sign in the password ends the host; or a fragment follows it.
    """
    parts = urlsplit(url)
    if "@" in parts.path or "@" in parts.fragment:
        raise ValueError(_ESCAPING)
    if parts.fragment:
        raise ValueError("leave out what begins with #, which no Redis reads")
    if not _REDIS_DB.fullmatch(parts.path):
        raise ValueError("the database of Redis must be a number, as in redis://HOST:6379/0")


def _user_first(url: str) -> str:
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query))
    if not asked.keys() & _USER_FIELDS:
        return url
    user = parts.username or quote(asked.get("username", ""), safe="")
    password = parts.password or quote(asked.get("password", ""), safe="")
    host = parts.netloc.rpartition("@")[2]
    others = [each for each in parts.query.split("&") if each.partition("=")[0] not in _USER_FIELDS]
    return parts._replace(netloc=f"{user}:{password}@{host}", query="&".join(others)).geturl()


def _check_options(url: str) -> None:
    """Refuse options on which one of the clients of that Redis would fail, or wait for ever for an answer.

    Raises:
        ValueError: There is such an option.
    """
    parts = urlsplit(url)
    given = parse_qs(parts.query, keep_blank_values=True)
    known = _TLS_OPTIONS if parts.scheme == "rediss" else ()
    strange = [name for name in given if name not in known]
    if strange and "@" in parts.query:
        raise ValueError(_ESCAPING)
    if strange:
        raise ValueError(
            f"redis:// takes no options, and rediss:// only {', '.join(_TLS_OPTIONS)}: not {', '.join(strange)}"
        )
    if not set(given.get(_CHECKS, ())) <= {"required", "optional", "none"}:
        raise ValueError(f"{_CHECKS} must be required, optional or none")
    if "ssl_keyfile" in given and "ssl_certfile" not in given:
        raise ValueError("ssl_keyfile needs ssl_certfile")


def service_urls(urls: str, schemes: Sequence[str]) -> str:
    """Several URLs, separated by semicolons and perhaps spaces, which kombu tries one after the other.

    Raises:
        ValueError: As in :func:`service_url`.
    """
    return ";".join(service_url(url.strip(), schemes) for url in urls.split(";"))


def host_of(url: str) -> str:
    """The host that a URL names; empty if it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether ``host``, an address or a name, is this machine."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def no_environment(reason: str) -> str:
    """The message for a user whose environment names a proxy or certificates that cannot be used."""
    named = "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
    return f"no connection can be made with what the environment says ({reason}): look at {named}"


_NEXT_URL: Final = re.compile(r";(?=[\w+.-]+://)")
_SECRET_VALUE: Final = re.compile(r"([?&](?=[^=&]*+=)[^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)
_USER: Final = re.compile(r"((?:[A-Za-z][\w+.-]*:)?/*+)(.*)@", re.DOTALL)


def masked(urls: str) -> str:
    """A URL, or several as in :func:`service_urls`, with ``***`` in place of secrets, so that it can be shown.

    Secrets are the password before the host, and values in the query whose names suggest a secret. If the password
    cannot be told from the rest, everything between the scheme and the last ``@`` is masked.
    """
    return ";".join(_masked(url) for url in _NEXT_URL.split(urls))


def _masked(url: str) -> str:
    shown = _SECRET_VALUE.sub(r"\1***", url)
    found = _USER.match(shown)
    if found is None:
        return shown
    scheme, user = found.groups()
    name, colon, _ = user.partition(":")
    if scheme.endswith("//") and not colon:  # a user without a password, or an @ in a path
        return shown
    is_clear = scheme.endswith("//") and not re.search("[/?#]", user)
    return f"{scheme}{f'{name}:' if is_clear else ''}***{shown[found.end(2) :]}"
