"""Every key of `poolrl.toml`, as everything that writes, asks for or explains it needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from poolrl.shop.config import Config


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
    def _extra(self) -> dict[str, Any]:
        return self.field.json_schema_extra if isinstance(self.field.json_schema_extra, dict) else {}


def config_keys() -> list[Key]:
    """Every key, in the order of the file."""
    sections = {name: field.annotation for name, field in Config.model_fields.items()}
    return [
        Key(section, name, field)
        for section, model in sections.items()
        if isinstance(model, type) and issubclass(model, BaseModel)
        for name, field in model.model_fields.items()
    ]
