"""Bounds of a result that lacks rows, from the rows that the stage keeps at the share that the
result states.

A row that is kept at some share is kept at every higher one (KR2), and a result states the largest
share that any of its batches lacked. So it has at least the rows that are kept at that share, and
no row twice: each of its sums is between theirs and the whole answer. With whole keys that is
exact for the keys that are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.codec.blocks import row_hashes
from anabranch.codec.kept_rows import kept_mask
from anabranch.pipeline.source_columns import source_schema
from anabranch.protocol.stage.kept_rows import KEPT_ALL, salt_of

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline

Result = tuple[int, int, int]
"""Vehicles, trucks and toll of a gate in a window."""


class Passage(NamedTuple):
    """One row of the input, as it was sent."""

    gate: int
    vehicle: int
    axles: int
    time_ms: int


def result_of(passages: Sequence[Passage]) -> Result:
    """Return the answer to ``passages``."""
    return (
        len(passages),
        sum(each.axles > 2 for each in passages),
        sum(2 if each.axles == 2 else 9 for each in passages),
    )


def least_of(
    pipeline: Pipeline, output: str, passages: Sequence[Passage], window_ms: int
) -> Callable[[tuple[int, int], int], Result] | None:
    """Return a function of (window's end in ms, gate) and the stated per mille of rows that a
    result lacks, for the least result that it may show; None where a function of the user chooses
    the rows, or the stage whose rows are left out is not that of the output.
    """
    stage = pipeline.stages[pipeline.outputs[output].stage]
    key = stage.shed.by.get("passages")
    if stage.shed.kind not in ("rows", "keys") or key is None or "passages" not in stage.reads:
        return None
    columns = zip(*[(*each, each.time_ms) for each in passages], strict=True)
    schema = source_schema(pipeline, "passages")
    table = pa.table([pa.array(column, pa.int64()) for column in columns], schema=schema)
    identities = row_hashes(table.select(list(key)) if key else table)
    salt = salt_of(stage.name)
    places: Mapping[tuple[int, int], list[int]] = defaultdict(list)
    for place, each in enumerate(passages):
        places[(each.time_ms // window_ms + 1) * window_ms, each.gate].append(place)
    masks: dict[int, np.ndarray] = {}

    def least(window: tuple[int, int], shed: int) -> Result:
        if shed not in masks:
            masks[shed] = kept_mask(identities, salt, KEPT_ALL - shed)
        return result_of([passages[place] for place in places[window] if masks[shed][place]])

    return least


def is_sound(found: Result, least: Result, whole: Result) -> bool:
    """Whether each sum of a result is between those of the fewest rows that it may be made from and
    those of all rows.
    """
    return all(low <= value <= high for low, value, high in zip(least, found, whole, strict=True))
