"""A function's parameters as one pydantic model, and that model's JSON Schema.

Field ``p0`` has the first parameter's name as its alias, and so on. So a parameter may have any name, even ``schema``
or ``copy``, without clashing with pydantic's own attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined
from typing_extensions import Doc

from harness_worker.core.registration.author_code import Raised, attempt
from harness_worker.core.registration.callables import NO_DEFAULT, Parameter
from harness_worker.core.registration.set_order import sort_sets
from harness_worker.core.registration.tools import Arguments
from harness_worker.core.run_context import RunContext
from harness_worker.errors import ConfigError

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentModel:
    """The parameters that a language model fills in.

    Args:
        model: The parameters as a pydantic model.
        names: Maps the model's fields to parameter names.
        schema: The JSON Schema, of an object.
    """

    model: type[BaseModel]
    names: Mapping[str, str]
    schema: Mapping[str, Any]

    def dump(self, parsed: BaseModel) -> Arguments:
        """A parsed model as JSON, by parameter name; sets are sorted."""
        plain = parsed.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
        return cast("Arguments", sort_sets(parsed, plain))

    def values(self, parsed: BaseModel) -> dict[str, Any]:
        """A parsed model as the function's keyword arguments."""
        return {name: getattr(parsed, key) for key, name in self.names.items()}


def argument_model(parameters: Iterable[Parameter], docs: Mapping[str, str], label: str) -> ArgumentModel:
    """The model of ``parameters``, described by ``docs`` where they do not describe themselves.

    Raises:
        ConfigError: A hint has no JSON form, a default does not fit its hint, or an alias is not the only one.
    """
    names = {f"p{index}": parameter for index, parameter in enumerate(parameters)}
    fields = {key: _field(p, docs.get(p.name), f"{label}: parameter {p.name!r}") for key, p in names.items()}
    model = _made(fields)
    return ArgumentModel(model=model, names={key: p.name for key, p in names.items()}, schema=_schema(model))


class _Schema(GenerateJsonSchema):
    """Schemas without the titles that pydantic derives from field names (they cost tokens), equal in every process."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 - pydantic's own signature
        return False

    def encode_default(self, dft: Any) -> Any:  # noqa: ANN401 - pydantic's own signature
        """The default as JSON, with sets sorted, so that every process gives models the same schema."""
        return sort_sets(dft, super().encode_default(dft))


def _made(fields: Mapping[str, Any]) -> type[BaseModel]:
    return create_model("arguments", __config__=_CONFIG, **fields)


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True, schema_generator=_Schema)
    schema.pop("title", None)
    return {"type": "object", "properties": {}, **schema}


def _field(parameter: Parameter, doc: str | None, where: str) -> tuple[Any, Any]:
    """The field's definition; each field is tried by itself, so that an error can name its parameter."""
    if RunContext in (parameter.hint, *_choices(parameter.hint)):
        raise ConfigError(f"{where}: the run context is given to the parameter named `ctx`; rename it")
    try:
        made = _definition(parameter, doc)
        trial = _made({"p0": made})
    except Exception as error:  # noqa: BLE001 - a hint is the tool author's code: it may raise anything
        raise _no_schema(parameter, where, error) from None
    _check_alias(trial, where)
    _check_default(trial, where)
    try:
        _schema(trial)
    except Exception as error:  # noqa: BLE001 - likewise
        raise _no_schema(parameter, where, error) from None
    return made


def _choices(hint: object) -> tuple[object, ...]:
    """The alternatives of a hint such as ``X | None``."""
    return get_args(hint) if get_origin(hint) in (Annotated, Union, UnionType) else ()


def _no_schema(parameter: Parameter, where: str, error: Exception) -> ConfigError:
    reason = str(error).partition("\n")[0]
    return ConfigError(f"{where}: its hint {parameter.hint!r} has no JSON Schema: {reason}")


def _definition(parameter: Parameter, doc: str | None) -> tuple[Any, Any]:
    said = None if _describes_itself(parameter) else _note(parameter) or doc
    extra: dict[str, Any] = {"description": said} if said else {}
    default = PydanticUndefined if parameter.default is NO_DEFAULT else parameter.default
    return Annotated[_hint(parameter), Field(alias=parameter.name, **extra)], default


def _hint(parameter: Parameter) -> Any:  # noqa: ANN401 - a type expression
    """The hint; ``x: int = None`` means ``int | None``."""
    if parameter.default is not None:
        return parameter.hint
    takes_none = attempt(TypeAdapter(parameter.hint).validate_python, None)  # validators are the author's
    return parameter.hint | None if isinstance(takes_none, Raised) else parameter.hint


def _describes_itself(parameter: Parameter) -> bool:
    described = (*_annotations(parameter), parameter.default)
    return any(isinstance(note, FieldInfo) and note.description for note in described)


def _note(parameter: Parameter) -> str | None:
    """The text in ``Annotated[int, Doc("how many")]``, or in ``Annotated[int, "how many"]`` if it is the only one."""
    notes = _annotations(parameter)
    texts = [note for note in notes if isinstance(note, str)]
    docs = [note.documentation for note in notes if isinstance(note, Doc)]
    return docs[0] if docs else texts[0] if len(texts) == 1 else None


def _annotations(parameter: Parameter) -> tuple[Any, ...]:
    return get_args(parameter.hint)[1:] if get_origin(parameter.hint) is Annotated else ()


def _check_alias(trial: type[BaseModel], where: str) -> None:
    """Refuse an argument that is read by one name and written by another: once bound, it could not be read again."""
    field = trial.model_fields["p0"]
    if field.validation_alias != field.serialization_alias:
        raise ConfigError(f"{where}: its Field has an alias that is only for reading or for writing; use alias='…'")


def _check_default(trial: type[BaseModel], where: str) -> None:
    """Refuse a default that does not survive as JSON: like any argument, it travels between processes."""
    field = trial.model_fields["p0"]
    if field.is_required():
        return
    try:
        trial.model_validate_json(trial.model_validate({}).model_dump_json(by_alias=True, warnings=False))
    except Exception as error:  # noqa: BLE001 - a default and its type are the tool author's code
        reason = str(error).replace("\n", " ")
        default = field.default_factory or field.default
        raise ConfigError(f"{where}: its default {default!r} does not fit its hint: {reason}") from None
