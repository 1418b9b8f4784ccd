"""Objects that keep what they were made with."""

from __future__ import annotations

from typing import Any


class Sealed:
    """No attribute is set, replaced or deleted after `seal`: what was checked is what is counted.

    Python has ways around it for who wants to. It stops slips, and methods set on an object.
    """

    __slots__ = ("_sealed",)

    def seal(self) -> None:
        """The last line of `__init__`."""
        object.__setattr__(self, "_sealed", True)

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_sealed", False):
            raise AttributeError(f"{name} of a {type(self).__name__} cannot be set: make a new one")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} of a {type(self).__name__} cannot be deleted")

    def __setstate__(self, state: Any) -> None:
        """What `copy` and `pickle` bring: a dictionary, or one beside the slots."""
        plain, slots = state if isinstance(state, tuple) else (state, None)
        for name, value in {**(plain or {}), **(slots or {})}.items():
            object.__setattr__(self, name, value)
