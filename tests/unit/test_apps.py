"""Loading an application's registry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness_worker.apps import check_app, load_named, load_registry
from harness_worker.errors import ConfigError

GOOD = "from harness_worker import Registry\nregistry = Registry()\n"

Write = Callable[[str], str]


def refusal(app: str | None) -> str:
    """Why the application cannot be loaded."""
    with pytest.raises(ConfigError) as refused:
        load_registry(app)
    return str(refused.value)


def test_load_registry_imports_from_the_working_directory(write: Write) -> None:
    """The registry is the object the import string names, in a module that need not be installed."""
    name = write(GOOD + "class box:\n    inner = registry\nregistry.agent('a', model='m', system='s', tools=[])\n")
    assert list(load_registry(f"{name}:registry").agents) == ["a"]
    assert load_registry(f"{name}:box.inner") is load_registry(f"{name}:registry")


@pytest.mark.parametrize("load", [check_app, load_registry])
def test_application_in_a_working_directory_that_was_removed_is_refused(
    load: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell may still be in it, after a deployment has put another in its place."""
    (tmp_path / "release").mkdir()
    monkeypatch.chdir(tmp_path / "release")
    (tmp_path / "release").rmdir()
    with pytest.raises(ConfigError, match="application 'shop:registry': the working directory was removed"):
        load("shop:registry")


@pytest.mark.parametrize("app", [None, "", "shop", "shop:", ":registry", "shop.py:registry", "a/b:registry", "a:b-c"])
def test_load_registry_explains_what_an_application_is_written_like(app: str | None) -> None:
    """A malformed import string is answered with an example."""
    assert "harness_worker.demo.shop:registry" in refusal(app)


def test_load_registry_explains_what_it_found_instead(write: Write) -> None:
    """A wrong name or type is answered with the registries there are."""
    name = write(GOOD + "other = 7\n")
    assert refusal(f"{name}:nope") == f"application '{name}:nope': {name} has no 'nope'; there is: {name}:registry"
    assert f"is a int, not a Registry; there is: {name}:registry" in refusal(f"{name}:other")
    assert "write `registry = Registry()`" in refusal(f"{write('x = 1')}:x")


@pytest.mark.parametrize("load", [check_app, load_registry])
@pytest.mark.parametrize("app", ["surely_not_here:registry", "surely_not_here.deeper:registry"])
def test_application_that_is_nowhere_says_where_it_may_be(load: Callable[[str], object], app: str) -> None:
    """Most often the command was started in another directory."""
    with pytest.raises(ConfigError) as refused:
        load(app)
    assert str(refused.value) == (
        f"application {app!r}: ModuleNotFoundError: No module named 'surely_not_here'; "
        "install its package, or start this in the directory that contains it"
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import sys; sys.exit('bye')", "SystemExit: bye"),
        ("class Odd(BaseException): ...\nraise Odd('so')", "Odd: so"),
        ("class Mute(Exception):\n    def __str__(self): raise self\nraise Mute", "Mute: (no message)"),
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("import surely_not_here", "No module named 'surely_not_here'"),
        (GOOD + "@registry.tool()\ndef f(a): ...\n", "tool 'f': parameter 'a' has no type hint"),
    ],
)
def test_load_registry_tells_what_an_application_raised(write: Write, source: str, said: str) -> None:
    """Whatever a module raises while it is imported is a configuration error with its message."""
    name = write(source)
    message = refusal(f"{name}:registry")
    assert message.startswith(f"application '{name}:registry': ")
    assert said in message


@pytest.mark.parametrize(
    ("source", "said", "line"),
    [
        ("import os\nos.environ['SURELY_NOT_SET']", "KeyError: 'SURELY_NOT_SET'", 2),
        ("import surely_not_here", "No module named 'surely_not_here'", 1),
        (GOOD + "@registry.tool()\ndef f(a): ...\n", "no type hint; add one, such as `a: str`", 3),
    ],
)
def test_load_registry_tells_the_line(write: Write, source: str, said: str, line: int) -> None:
    """The application's last: not one of what it called, nor of what called it."""
    name = write(source)
    assert refusal(f"{name}:registry").endswith(f"{said} ({name}.py, line {line})")


def test_line_may_be_in_another_module_of_the_application(write: Write, tmp_path: Path) -> None:
    """Below the directory in which the application lies, by its path from there; a SyntaxError tells its own."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "bad.py").write_text("\nint('x')\n")
    assert refusal(f"{write('import parts.bad')}:registry").endswith("'x' (parts/bad.py, line 2)")
    (tmp_path / "parts" / "worse.py").write_text("x =\n")
    assert refusal(f"{write('import parts.worse')}:registry").endswith("invalid syntax (worse.py, line 1)")


def test_module_that_raises_when_it_is_asked_for_its_registry_is_told(write: Write) -> None:
    """Some modules import what they name only when they are asked for it (PEP 562)."""
    app = write("def __getattr__(name):\n    raise ImportError(f'{name} needs more')\n")
    assert (
        refusal(f"{app}:registry")
        == f"application '{app}:registry': ImportError: registry needs more ({app}.py, line 2)"
    )


def test_load_registry_takes_the_ceiling_of_timeouts_from_the_settings(write: Write) -> None:
    """``timeout_s`` is at most 45 unless the settings say so."""
    source = GOOD + "@registry.tool(timeout_s=60)\ndef f() -> int:\n    return 1\n"
    assert "at most 45" in refusal(f"{write(source)}:registry")
    assert load_registry(f"{write(source)}:registry", max_tool_timeout_s=60).tools["f"].timeout_s == 60
    own = source.replace("Registry()", "Registry(max_tool_timeout_s=90)")
    assert "at most 45" in refusal(f"{write(own)}:registry")


def test_load_named_leaves_what_its_module_imports_its_own_ceiling(write: Write) -> None:
    """Checks may import the application whose tools have longer limits; only a worker's settings say otherwise."""
    source = (
        GOOD.replace("()", "(max_tool_timeout_s=90)") + "@registry.tool(timeout_s=60)\ndef f() -> int:\n    return 1\n"
    )
    app = write(source)
    assert load_named("checks", f"{write(f'from {app} import f')}:f")
