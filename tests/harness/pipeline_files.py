"""Pipeline files in a folder of a test, beside what they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.errors import ConfigurationError

RECORD = '{"type": "record", "name": "car", "fields": [{"name": "n", "type": "long"}]}'
FUNCTIONS = "def first(cars, **_): return cars\n\ndef second(first): return first\n"


def written(folder: Path, text: str, functions: str = FUNCTIONS) -> Path:
    """Write ``pipeline.yaml``, and beside it ``car.avsc`` and ``stages.py``."""
    (folder / "car.avsc").write_text(RECORD)
    (folder / "stages.py").write_text(functions)
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return path


def loaded(folder: Path, text: str, functions: str = FUNCTIONS) -> Pipeline:
    return load(written(folder, text, functions))


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        loaded(folder, text)
    return str(caught.value).splitlines()
