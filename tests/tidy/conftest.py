"""Fixtures of the tidy tests: the files of the project, as git sees them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def files() -> list[Path]:
    """Every file that is tracked, or would be: relative to the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    return sorted({Path(name) for name in listed if name and (ROOT / name).is_file()})


@pytest.fixture(scope="session")
def modules(files: list[Path]) -> dict[str, str]:
    """Return the source of every module of the package, by its dotted name."""
    found = {}
    for path in files:
        if path.suffix == ".py" and path.parts[:2] == ("services", "anabranch"):
            parts = path.with_suffix("").parts[1:]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = (ROOT / path).read_text()
    assert found
    return found
