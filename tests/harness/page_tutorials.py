"""The tutorials of docs/overload.md and docs/scaling.md, applied to a new pipeline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"


def blocks(page: str, heading: str) -> dict[str, list[str]]:
    """Return the blocks of code below a heading of a page, up to the next one, by language."""
    section = (DOCS / page).read_text().split(f"\n{heading}\n")[1]
    section = re.split(r"^#{2,3} ", section, flags=re.MULTILINE)[0]
    found: dict[str, list[str]] = {}
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        found.setdefault(language, []).append(text)
    return found


def prepare_rush(folder: Path) -> None:
    """Change a new pipeline as "Try it" of docs/overload.md says."""
    found = blocks("overload.md", "## Try it")
    (stages,), (line,) = found["python"], found["yaml"]
    file = folder / "pipeline.yaml"
    transform = "    transform: stages:hottest\n"
    text = file.read_text()
    assert text.count(transform) == 1
    file.write_text(text.replace(transform, transform + line))
    (folder / "stages.py").write_text(stages)


def prepare_split(folder: Path) -> None:
    """Change a new pipeline as "Watch a split" of docs/scaling.md says."""
    found = blocks("scaling.md", "### Watch a split")
    (functions,), (stages, end) = found["python"], found["yaml"]
    file = folder / "pipeline.yaml"
    before, _, after = file.read_text().partition("stages:\n")
    file.write_text(before + stages + "outputs:\n" + after.partition("outputs:\n")[2] + end)
    (folder / "stages.py").write_text(functions)
