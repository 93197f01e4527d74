"""Tests of the settings of a node's Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.adapters.secret_files import from_environment
from anabranch.adapters.spark.settings import SparkSettings
from anabranch.pipeline.model import Resources
from anabranch.protocol.errors import ConfigurationError


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


def test_a_master_in_the_file_is_taken_as_it_stands() -> None:
    found = SparkSettings().with_resources(Resources(master="spark://a:7077", cores=4))
    assert (found.master, found.cores) == ("spark://a:7077", 4)
    assert SparkSettings().with_resources(Resources(cores=4)).cores is None


@pytest.mark.parametrize(
    "master", ["local", "local[4]", "local[2,3]", "spark://a:7077", "spark://a:1,b.c-d:2"]
)
def test_masters_that_a_node_can_have(master: str) -> None:
    assert SparkSettings(master=master).master == master


@pytest.mark.parametrize(
    "master",
    ["", "yarn", "k8s://https://a:1", "local[*]", "local[0]", "spark://a", "spark://a:1,", "a:1"],
)
def test_masters_that_it_cannot_have(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_SPARK_MASTER", master)
    with pytest.raises(ConfigurationError, match=r"ANABRANCH_SPARK_MASTER: .*spark://HOST:PORT"):
        from_environment(SparkSettings)


def test_the_secret_of_a_cluster_is_in_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert SparkSettings().cluster_secret() is None
    file = tmp_path / "secret"
    file.write_text("abc\n")
    file.chmod(0o600)
    monkeypatch.setenv("ANABRANCH_SPARK_SECRET_FILE", str(file))
    assert SparkSettings().cluster_secret() == "abc"
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        SparkSettings().cluster_secret()
