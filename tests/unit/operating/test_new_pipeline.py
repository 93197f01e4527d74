"""Test that ``anabranch init`` writes a valid pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.operating.new_pipeline import files, write
from anabranch.operating.trial import cases_in, source_rows
from anabranch.pipeline.file import load
from anabranch.protocol.errors import ConfigurationError


def test_it_is_a_pipeline_with_records_of_its_schema_and_a_case(tmp_path: Path) -> None:
    write(tmp_path / "new", "sensors")
    pipeline = load(tmp_path / "new" / "pipeline.yaml")
    assert (pipeline.name, pipeline.version) == ("sensors", 1)
    (case,) = cases_in(pipeline, tmp_path / "new" / "tests", [])
    assert source_rows(pipeline, "readings", case.inputs["readings"]).num_rows == 10
    assert list(case.expected) == ["hottest"]
    assert "version: 1\n" in files("sensors")["pipeline.yaml"]


def test_nothing_is_written_into_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    for place in (tmp_path, tmp_path / "mine"):
        with pytest.raises(
            ConfigurationError,
            match=r"is not an empty folder: give the name of a new one, `anabranch init FOLDER`",
        ):
            write(place, "p")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write(Path("/proc/nothing/here"), "p")
