"""Pipelines of the overloaded toll road, copied for a run of their own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

_FOLDER: Final = Path(__file__).with_name("pipeline")
SHED: Final[dict[str, object]] = {
    "off": "off",
    "rows": "rows",
    "keys": "keys",
    "transform": {"transform": "stages:trucks_first"},
}
"""Values of ``shed`` that are compared."""


def one_stage(folder: Path, shed: str) -> Path:
    """Copy the pipeline of one stage to ``folder``, with this value of ``shed``. Return the path of
    its file.
    """
    path = _copied(folder, "one.yaml")
    yaml = YAML()
    document = yaml.load(path)
    document["stages"]["tolls"]["shed"] = SHED[shed]
    yaml.dump(document, path)
    return path


def two_stages(folder: Path) -> Path:
    """Copy the pipeline of two stages on one node. Return the path of its file."""
    return _copied(folder, "two.yaml")


def scaled_stage(folder: Path) -> Path:
    """Copy the pipeline of a stage that the scaler may split. Return the path of its file."""
    return _copied(folder, "scaled.yaml")


def _copied(folder: Path, name: str) -> Path:
    shutil.copytree(_FOLDER, folder / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "pipeline" / name
