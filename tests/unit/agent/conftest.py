"""Fixture that every test of the agent uses: records are decoded once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation.decoding import decoded_once


@pytest.fixture(autouse=True)
def _decoded_once() -> Iterator[None]:
    """Decode the same bytes once in each test: the agents, brokers and meters of a world all read
    the same records.
    """
    with decoded_once():
        yield
