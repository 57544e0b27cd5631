"""The only module that uses the package ``bfcl_eval``, which is loaded on demand, by name, because it is optional.

Only the modules of the domain classes are imported, never the package's own executor, which evaluates text.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from harness_worker.workloads.base import WorkloadTask
from harness_worker.workloads.bfcl.notation import json_schema, recorded_call
from harness_worker.workloads.packages import imported

CATEGORIES: Final = ("base", "long_context", "miss_func", "miss_param")

_PACKAGE: Final = "bfcl_eval"
_CLASSES: Final = f"{_PACKAGE}.eval_checker.multi_turn_eval.func_source_code"
_MODULES: Final = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""The domain classes of the multi-turn tasks, each with its module and its function document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One public method of a domain class, as described to the model."""

    owner: str
    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a task starts from.

    Args:
        involved: The domain classes whose methods it may call.
        config: The initial state of each.
        long_context: Whether they pad their results.
    """

    involved: tuple[str, ...]
    config: Mapping[str, Any]
    long_context: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bfcl:
    """The package's multi-turn tasks, loaded once per process and never changed.

    Args:
        classes: The domain classes by name.
        functions: Their methods by name; no two classes share one.
        scenarios: What each task starts from, by its id.
        tasks: The tasks of all categories, in the authors' order.
    """

    classes: Mapping[str, type[Any]]
    functions: Mapping[str, Function]
    scenarios: Mapping[str, Scenario]
    tasks: tuple[WorkloadTask, ...]


def load_bfcl() -> Bfcl:
    """Load the classes and the tasks.

    Raises:
        ConfigError: The package is not installed; the message contains the command that installs it.
    """
    classes: dict[str, type[Any]] = {
        name: getattr(imported(f"{_CLASSES}.{module}"), name) for name, module in _MODULES.items()
    }
    functions = {function.name: function for name in classes for function in _functions(name)}
    signatures = {name: inspect.signature(getattr(classes[each.owner], name)) for name, each in functions.items()}
    rows = [(category, row) for category in CATEGORIES for row in _rows(_file(category))]
    return Bfcl(
        classes=classes,
        functions=functions,
        scenarios={row["id"]: _scenario(category, row) for category, row in rows},
        tasks=tuple(_tasks(rows, signatures)),
    )


def _functions(owner: str) -> Iterator[Function]:
    for row in _rows(f"multi_turn_func_doc/{_MODULES[owner]}.json"):
        yield Function(
            owner=owner, name=row["name"], description=row["description"], schema=json_schema(row["parameters"])
        )


def _scenario(category: str, row: Mapping[str, Any]) -> Scenario:
    return Scenario(
        involved=tuple(row["involved_classes"]),
        config=row["initial_config"],
        long_context=category == "long_context",
    )


def _tasks(
    rows: list[tuple[str, dict[str, Any]]], signatures: Mapping[str, inspect.Signature]
) -> Iterator[WorkloadTask]:
    answers = {row["id"]: row for category in CATEGORIES for row in _rows(f"possible_answer/{_file(category)}")}
    for category, row in rows:
        # A user's turn that needs no call would end the task's one turn here, and tests nothing of the harness.
        messages = [texts for texts in answers[row["id"]]["ground_truth"] if texts]
        yield WorkloadTask(
            id=row["id"],
            input="\n".join(message["content"] for turn in row["question"] for message in turn),
            calls=tuple(recorded_call(text, signatures) for texts in messages for text in texts),
            messages=tuple(len(texts) for texts in messages),
            category=category,
        )


def _file(category: str) -> str:
    return f"BFCL_v4_multi_turn_{category}.json"


def _rows(path: str) -> list[dict[str, Any]]:
    text = resources.files(_PACKAGE).joinpath("data", path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]
