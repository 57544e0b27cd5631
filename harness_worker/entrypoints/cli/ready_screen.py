"""What ``harness up`` prints when it is ready: what runs, and commands to try next."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from harness_worker.client.client import GatewayClient, RequestRefused, StackUnreachable
from harness_worker.entrypoints.stack.info import StackInfo
from harness_worker.urls import masked

_QUESTION = "Hello"


def ready_screen(info: StackInfo, *, tells_flower_password: bool = False) -> str:
    """The stack's addresses and processes, and where to look next.

    Args:
        info: The stack.
        tells_flower_password: Whether Flower's password is shown.
    """
    rows = {
        "gateway": info.gateway_url,
        "api docs": f"{info.gateway_url}/docs",
        **({"flower": _flower(info.flower_url, tells_password=tells_flower_password)} if info.flower_url else {}),
        "redis": masked(info.redis_url),
        "database": masked(info.database_url),
        "home": str(info.home),
        "processes": ", ".join(f"{process.role} {process.pid}" for process in info.processes),
    }
    return "\n".join(
        [
            "",
            f"The harness is up (pid {info.pid}); Ctrl-C stops it.",
            "",
            *(f"  {name:<10} {value}" for name, value in rows.items()),
            "",
            *_what_next(info),
            "",
        ]
    )


def _what_next(info: StackInfo) -> list[str]:
    agent = _first_agent(info.gateway_url)
    if agent is None:
        return [f"No agent can be asked: {info.app} declares none. Add one with registry.agent(...), and start again."]
    body = shlex.quote(json.dumps({"agent": agent, "input": _QUESTION}))
    return [
        "Try, in another terminal:",
        f'  {_program()} run "{_QUESTION}" --agent {shlex.quote(agent)} --home {shlex.quote(str(info.home))}',
        f"  curl -s {info.gateway_url}/v1/turns -H 'Prefer: wait=20' -d {body}",
        f"  curl -s {info.gateway_url}/v1/agents",
    ]


def _program() -> str:
    """How a shell calls this program, whatever its directory."""
    path = Path(sys.argv[0]).absolute()
    return path.name if shutil.which(path.name) == str(path) else shlex.quote(str(path))


def _flower(url: str, *, tells_password: bool) -> str:
    parts = urlsplit(url)
    password = unquote(parts.password or "") if tells_password else "***"
    return f"http://{parts.hostname}:{parts.port}  user {unquote(parts.username or '')}  password {password}"


def _first_agent(gateway_url: str) -> str | None:
    """An agent to use in the example commands; ``None`` if there is none."""
    try:
        with GatewayClient(gateway_url, "", patience_s=0) as client:
            agents = client.agents()
    except (RequestRefused, StackUnreachable):
        return "YOUR_AGENT"
    return str(agents[0]["name"]) if agents else None
