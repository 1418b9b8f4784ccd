"""Every key of `poolrl.toml`, as everything that writes, asks for or explains it needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from poolrl.workflow.config import Config


@dataclass(frozen=True)
class Key:
    """One key of the file, as everything that writes, asks for or explains it needs it."""

    section: str
    name: str
    field: FieldInfo

    @property
    def why(self) -> str:
        """The reason for it."""
        return str(self.field.description)

    @property
    def asked(self) -> bool:
        """Whether `init` asks for it."""
        return self._extra.get("asked", False)

    @property
    def answer(self) -> str | None:
        """The text that stands for no answer; "" where the key may be left out, None where an answer is needed."""
        return self._extra.get("answer")

    @property
    def flag(self) -> str:
        """The name of its flag; columns of a sales export have another one than those of a wide table."""
        return self._extra.get("flag") or self.name

    @property
    def _extra(self) -> dict[str, Any]:
        return self.field.json_schema_extra if isinstance(self.field.json_schema_extra, dict) else {}


def config_keys() -> list[Key]:
    """Every key, in the order of the file."""
    return [
        Key(section, name, field)
        for section, model in section_models().items()
        for name, field in model.model_fields.items()
    ]


def section_models() -> dict[str, type[BaseModel]]:
    """The model of each section; one that may be left out is a union with None."""
    found: dict[str, type[BaseModel]] = {}
    for name, field in Config.model_fields.items():
        for each in (field.annotation, *(_unannotated(part) for part in get_args(field.annotation))):
            # The first one: a [problem] of another kind than shops has keys of its own (`config_kind`).
            if isinstance(each, type) and issubclass(each, BaseModel):
                found.setdefault(name, each)
    return found


def _unannotated(part: Any) -> Any:
    """A type without what is annotated to it."""
    return get_args(part)[0] if get_origin(part) is Annotated else part
