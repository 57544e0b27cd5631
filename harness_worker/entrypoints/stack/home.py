"""The directory of one stack: its files, and the lock that keeps a second stack out."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final

from harness_worker.credentials import webhook_secrets
from harness_worker.errors import ConfigError, HarnessError
from harness_worker.urls import in_url

_SECRET_BYTES: Final = 32


class HomeInUse(HarnessError):  # noqa: N818 - reads as what it says
    """Another stack runs in this home; the message names the home and the stack."""


class Home:
    """Paths below a stack's home.

    Args:
        path: The directory; relative ones are taken from the working directory.

    Raises:
        ConfigError: The path names an unknown user, or is relative to a working directory that was removed.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.path = path.expanduser().absolute()
        except RuntimeError as unknown:
            raise _unusable(path, str(unknown).rstrip(".")) from None
        except FileNotFoundError:
            raise _unusable(path, "the working directory was removed") from None
        self.run = self.path / "run"
        self.logs = self.path / "logs"
        self.valkey = self.path / "valkey"
        self.artifacts = self.path / "artifacts"
        self.valkey_file = self.run / "valkey.conf"
        self.stack_file = self.run / "stack.json"
        self._lock_file = self.run / "lock"
        self._webhook_secret_file = self.path / "webhook_secret"

    @property
    def database_url(self) -> str:
        """The SQLite database that is used unless another database is given."""
        return f"sqlite:///{in_url(self.path)}/harness.db"

    @property
    def artifact_url(self) -> str:
        """The artifact store that is used unless another one is given."""
        return f"file://{self.artifacts}"  # as it is, because fsspec decodes nothing

    def prepare(self) -> None:
        """Create the directories, readable only by this user; an existing home keeps its permissions.

        Raises:
            ConfigError: They cannot be created or written to.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for directory in (self.run, self.logs, self.valkey, self.artifacts):
                directory.mkdir(mode=0o700, exist_ok=True)
            self._lock_file.touch(mode=0o600)  # they may all exist and still not be writable
        except OSError as refused:
            raise _unusable(self.path, refused.strerror) from None

    def ready_file(self, role: str) -> Path:
        """The file that the process of that role writes once it is ready."""
        return self.run / f"{role}.ready"

    def pid_file(self, role: str) -> Path:
        """The file with the pid of the process of that role."""
        return self.run / f"{role}.pid"

    def kept_webhook_secret(self) -> str | None:
        """The secret that signs webhooks unless a setting gives one; ``None`` before the first start.

        Raises:
            ConfigError: The file holds something else; an empty file counts as absent.
        """
        file = self._webhook_secret_file
        try:
            return _secret_in(file.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            raise ConfigError(
                f"{file} holds no secret for webhooks: put back the one it held, or remove it, and `harness up` makes "
                "another; HARNESS_WEBHOOK_SECRET wins over it"
            ) from None

    def webhook_secret(self) -> str:
        """The secret that signs webhooks, created if there is none yet; the caller must hold the lock."""
        kept = self.kept_webhook_secret()
        if kept is None:
            kept = token_hex(_SECRET_BYTES)
            self.write_private(self._webhook_secret_file, f"{kept}\n")
        return kept

    def write_private(self, file: Path, text: str) -> None:
        """Replace a file's content atomically; only this user can read it."""
        new = file.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(descriptor)  # or a power cut may leave the new name without its content
        new.replace(file)

    @contextmanager
    def locked(self, only_for: str | None = None, held: int | None = None) -> Generator[int]:
        """Lock the home for this process; the kernel releases the lock when the process ends.

        Args:
            only_for: The command that this process serves; shown to others who find the home in use.
            held: The descriptor of the lock, if the process that started this one took it and handed it over.

        Yields:
            The lock's descriptor; a process that inherits it keeps the home locked.

        Raises:
            HomeInUse: Another process holds it.
        """
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600) if held is None else held
        with os.fdopen(descriptor, "r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HomeInUse(self._in_use(*lock.read().strip().partition(" ")[::2])) from None
            lock.seek(0)  # whoever handed it over has written too
            lock.truncate()
            lock.write(f"{os.getpid()} {only_for or ''}")
            lock.flush()
            yield descriptor

    def _in_use(self, pid: str, only_for: str) -> str:
        if only_for:
            return (
                f"home {self.path} is in use by a stack that `{only_for}` started for itself (pid {pid}): "
                "wait until that command has ended, or choose another home with --home"
            )
        return (
            f"home {self.path} is in use by `harness up` with pid {pid or 'unknown'}: "
            f"stop that one (kill {pid or 'PID'}), or choose another home with --home"
        )


def _unusable(path: Path, why: str | None) -> ConfigError:
    return ConfigError(f"cannot use {path} as home: {why}; choose another with --home")


def _secret_in(content: bytes) -> str | None:
    text = content.decode().strip()
    secrets = webhook_secrets(text) if text else ()
    if not all(each.isprintable() for each in secrets):  # a power cut may leave zeros, which no environment accepts
        raise ValueError
    return " ".join(secrets) or None
