"""What a node's Spark may take."""

from __future__ import annotations

import pytest

from anabranch.adapters.spark.settings import SparkSettings
from anabranch.pipeline.model import Resources


def test_the_file_says_it_of_a_node_and_the_environment_of_its_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = Resources(memory="3g", cores=4)
    found = SparkSettings().with_resources(wanted)
    assert (found.memory, found.master) == ("3g", "local[4]")
    assert SparkSettings().with_resources(Resources()) == SparkSettings()
    monkeypatch.setenv("ANABRANCH_SPARK_MEMORY", "512m")
    found = SparkSettings().with_resources(wanted)
    assert (found.memory, found.master) == ("512m", "local[4]")
