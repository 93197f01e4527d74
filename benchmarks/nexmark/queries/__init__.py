"""Pipeline files of the queries, one each."""

from __future__ import annotations

from pathlib import Path


def path_of(query: str) -> Path:
    """Return the path of the pipeline file of ``query``."""
    return Path(__file__).with_name(f"{query}.yaml")
