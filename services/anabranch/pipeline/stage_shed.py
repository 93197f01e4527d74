"""Reader of the key ``shed`` of a stage: the rows that an overloaded stage may leave out of its
tentative results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from anabranch.pipeline.document import MISSING, Document, Place
from anabranch.pipeline.model import Shed, Stage

_KINDS: Final = ("off", "rows", "keys")
_HINT: Final = (
    "write rows (rows at random), keys (all rows of some keys, of the columns in shard_by), or off"
)


def read_shed(
    document: Document, raw: Mapping[str, Any], stage: Stage, by: Mapping[str, tuple[str, ...]]
) -> Shed:
    """Return what the stage sheds; valid only if there is no mistake.

    Args:
        document: Takes the mistakes.
        raw: The stage's section.
        stage: The stage as read so far.
        by: Key columns of each input, from ``shard_by``; empty where no key is known. An input
            without columns is read whole.
    """
    at: Place = ("stages", stage.name, "shed")
    has_branches = stage.on_missing_input != "suspend"
    given = raw.get("shed", MISSING)
    if given is MISSING:
        kind = "keys" if by and has_branches else "off"
    elif given is False:  # YAML 1.1 reads off as false, and so does a reader's eye
        kind = "off"
    elif isinstance(given, dict):
        document.mistake(at, f"a mapping is not possible here; {_HINT}")
        return Shed()
    else:
        kind = document.choice(given, at, _KINDS)
    if kind == "off":
        return Shed()
    if not has_branches:
        document.mistake(
            at,
            f"{kind} gives tentative results, and on_missing_input: suspend allows none; leave one"
            " of them out",
        )
    if kind == "keys" and not by:
        document.mistake(
            at,
            "keys needs the columns of the key; add shard_by: [COLUMN], or those of each input,"
            " shard_by: {INPUT: [COLUMN]}; without a key write shed: rows",
        )
    # An input that each shard reads whole is small, and the others are joined to it: without its
    # rows the kept ones would have no results.
    cut = [name for name in stage.reads if by.get(name) or not by]
    columns = {name: by[name] if kind == "keys" and by else () for name in cut}
    return Shed(kind=cast("Any", kind), by=columns)
