"""Loads an application's registry by its import string."""

from __future__ import annotations

import sys
from importlib import import_module, util
from pathlib import Path
from traceback import walk_tb
from types import ModuleType

from harness_worker.core.registration.author_code import Raised, attempt, words_of
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tool_options import MAX_TIMEOUT_S, TIMEOUT_CEILING_S
from harness_worker.errors import ConfigError

EXAMPLE = "harness_worker.demo.shop:registry"
NOT_FOUND = "; install its package, or start this in the directory that contains it"


def check_app(app: str) -> None:
    """Refuse an import string that cannot work, without running anything of the application.

    Raises:
        ConfigError: The import string is malformed, there is no such module, or the working directory was removed.
    """
    module_name, _ = _parts(app)
    package = module_name.partition(".")[0]
    label = f"application {app!r}"
    _make_directory_importable(label)
    if package not in sys.modules and util.find_spec(package) is None:
        raise ConfigError(f"{label}: ModuleNotFoundError: No module named {package!r}{NOT_FOUND}")


def load_registry(app: str | None, *, max_tool_timeout_s: float = MAX_TIMEOUT_S) -> Registry:
    """Import ``module:registry``; the working directory is importable.

    Args:
        app: The import string.
        max_tool_timeout_s: The longest ``timeout_s`` its tools may have, in seconds, whatever its module says.

    Raises:
        ConfigError: There is no such module or registry, or importing it raised; the message says which and why.
    """
    module_name, names = _parts(app)
    label = f"application {app!r}"
    ceiling = TIMEOUT_CEILING_S.set(max_tool_timeout_s)
    try:
        module = _imported(label, module_name)
    finally:
        TIMEOUT_CEILING_S.reset(ceiling)
    hint = _hint(module)
    found = _named(label, module, names, f"; {hint}")
    if not isinstance(found, Registry):
        raise ConfigError(f"{label} is a {type(found).__name__}, not a Registry; {hint}")
    return found


def load_named(label: str, name: str) -> object:
    """The object that ``module:name`` names; the working directory is importable.

    Args:
        label: Its name in error messages.
        name: The import string.

    Raises:
        ConfigError: The import string is malformed, there is no such object, or importing the module raised.
    """
    module_name, names = _split(label, name, "module:function")
    return _named(label, _imported(label, module_name), names)


def _parts(app: str | None) -> tuple[str, list[str]]:
    if not app:
        raise ConfigError(f"no application: set HARNESS_APP=module:registry or give --app, such as --app {EXAMPLE}")
    return _split(f"application {app!r}", app, f"module:registry, with dots, such as {EXAMPLE}")


def _split(label: str, path: str, shape: str) -> tuple[str, list[str]]:
    module_name, _, name = path.partition(":")
    parts = name.split(".")
    if not all(part.isidentifier() for part in (*module_name.split("."), *parts)) or module_name.endswith(".py"):
        raise ConfigError(f"{label}: write it as {shape}")
    return module_name, parts


def _imported(label: str, module_name: str) -> ModuleType:
    _make_directory_importable(label)
    match attempt(import_module, module_name):
        case Raised(error=error):
            raise _refusal(label, error, module_name) from error
        case module:
            return module


def _refusal(label: str, error: BaseException, module_name: str) -> ConfigError:
    words = words_of(error) or "(no message)"
    said = words if isinstance(error, ConfigError) else f"{type(error).__name__}: {words}"
    is_absent = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
    return ConfigError(f"{label}: {said}{NOT_FOUND if is_absent else _place(error, module_name)}")


def _place(error: BaseException, module_name: str) -> str:
    """The last line of the application's own code that led to the error, if any; a SyntaxError names its own line."""
    root = _directory_of(module_name.partition(".")[0])
    if root is None or isinstance(error, SyntaxError):
        return ""
    places = [
        f" ({path.relative_to(root)}, line {line})"
        for frame, line in walk_tb(error.__traceback__)
        if (path := Path(frame.f_code.co_filename)).is_relative_to(root)
        and _is_own(path, str(frame.f_globals.get("__name__")), module_name)
    ]
    return places[-1] if places else ""


def _directory_of(package: str) -> Path | None:
    """The directory in which a top-level module or package was found."""
    spec = attempt(util.find_spec, package)
    if spec is None or isinstance(spec, Raised):
        return None
    lies_in = [*(spec.submodule_search_locations or ()), spec.origin][0]
    return Path(lies_in).parent if lies_in else None


def _is_own(path: Path, name: str, module_name: str) -> bool:
    """Whether a module below the application's directory is the application's own, not a library's or the harness's."""
    package = module_name.partition(".")[0]
    if name.partition(".")[0] == "harness_worker":  # may be there too, and contains applications itself
        return package == "harness_worker" and name.startswith(module_name.rpartition(".")[0])
    return name.partition(".")[0] == package or "site-packages" not in path.parts


def _make_directory_importable(label: str) -> None:
    try:
        directory = str(Path.cwd())
    except FileNotFoundError:
        raise ConfigError(f"{label}: the working directory was removed") from None
    if directory not in sys.path:
        sys.path.insert(0, directory)


def _named(label: str, module: ModuleType, names: list[str], hint: str = "") -> object:
    found: object = module
    for name in names:
        match attempt(getattr, found, name):
            case Raised(error=AttributeError()):
                raise ConfigError(f"{label}: {module.__name__} has no {'.'.join(names)!r}{hint}")
            case Raised(error=error):
                raise _refusal(label, error, module.__name__) from error
            case value:
                found = value
    return found


def _hint(module: ModuleType) -> str:
    registries = [name for name, value in vars(module).items() if isinstance(value, Registry)]
    named = ", ".join(f"{module.__name__}:{name}" for name in registries)
    return f"there is: {named}" if named else "it makes none: write `registry = Registry()` in it"
