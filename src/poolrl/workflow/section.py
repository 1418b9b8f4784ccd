"""What a section of `poolrl.toml` is made of: keys with the reason for each."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


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


class ConfigSection(BaseModel):
    """One section. Nothing is converted, and an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)
