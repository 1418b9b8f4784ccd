"""The parts of a section of `poolrl.toml`: keys with the reason for each.

The reason is the comment in the file, the question that `poolrl init` asks, and the help of the key's flag. Type and
bounds are the rule by which both the file and an answer are judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo


def key(
    default: Any = ...,
    *,
    why: str,
    answer: str | None = None,
    asked: bool = True,
    flag: str | None = None,
    **rules: Any,
) -> Any:
    """A key of the file: why it is there, and the text that `init` takes where nobody answers ("" leaves it out).

    `flag` is the name of its flag, where two sections have a key of one name.
    """
    return Field(default, description=why, json_schema_extra={"answer": answer, "asked": asked, "flag": flag}, **rules)


def name_key(default: Any = ..., *, why: str, answer: str | None = None, **more: Any) -> Any:
    """A key that holds one name."""
    return key(default, why=why, answer=answer, min_length=1, max_length=10_000, **more)


def is_name(text: str) -> bool:
    """Whether a text can be shown as a name."""
    return bool(text.strip()) and text.isprintable()


def faults_of_names(**lists: list[str]) -> list[str]:
    """What is wrong with lists of names, by their keys."""
    return [
        f"{key} must be printable names that differ, ignoring case"
        for key, names in lists.items()
        if len({name.lower() for name in names}) < len(names) or not all(map(is_name, names))
    ]


class ConfigSection(BaseModel):
    """One section. Nothing is converted, and an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


@dataclass(frozen=True)
class Key:
    """One key of the file, as everything that writes, asks for or explains it needs it."""

    section: str
    name: str
    field: FieldInfo

    @property
    def place(self) -> str:
        """Its name in the whole file."""
        return f"{self.section}.{self.name}"

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


def keys_of_model(section: str, model: type[BaseModel]) -> list[Key]:
    """Every key of a section."""
    return [Key(section, name, field) for name, field in model.model_fields.items()]
