"""A small private model that every test of this room asks; do not change it."""

from __future__ import annotations

import pytest

from poolrl import PrivateModel
from tests.helpers.plans import small_model


@pytest.fixture(scope="session")
def model() -> PrivateModel:
    return small_model()
