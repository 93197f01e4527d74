"""Transcripts: a command, ``----``, what followed. With ``ANABRANCH_WRITE_TRANSCRIPTS=1``
they are written anew, to be reviewed as a diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

Play = Callable[[list[str]], list[str]]
"""Commands of one block -> lines that follow."""


def replay(path: Path, play: Play) -> str:
    """Return the text of ``path`` with the answers that ``play`` gives now."""
    blocks = []
    for block in path.read_text().strip().split("\n\n"):
        commands, divider, _ = block.partition("\n----")
        if divider:
            answers = play([c for c in commands.splitlines() if not c.startswith("#")])
            blocks.append("\n".join([commands, "----", *answers]))
        else:
            blocks.append(block)
    return "\n\n".join(blocks) + "\n"


def check_transcript(path: Path, play: Play) -> None:
    """Compare a transcript with what happens now."""
    found = replay(path, play)
    if os.environ.get("ANABRANCH_WRITE_TRANSCRIPTS") == "1":
        path.write_text(found)
    assert found == path.read_text()
