"""Pages of experiments: text by hand, around blocks that the experiment writes anew."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(
        "| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]
    )


def replaced(text: str, name: str, body: str) -> str:
    """Return the page ``text`` with its block ``name`` replaced.

    Raises:
        SystemExit: there is no such block.
    """
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"the page has no block {name}")
    return pattern.sub(lambda match: f"{match[1]}{body}\n{match[2]}", text)


def write_page(page: Path, blocks: Mapping[str, str], plots: Mapping[str, str]) -> None:
    """Replace ``blocks`` of ``page``, and write ``plots``, SVG by name, beside it."""
    text = page.read_text(encoding="utf-8")
    for name, body in blocks.items():
        text = replaced(text, name, body)
    page.write_text(text, encoding="utf-8")
    for name, body in plots.items():
        page.with_name(f"{name}.svg").write_text(body, encoding="utf-8")
