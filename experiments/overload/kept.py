"""Bounds of a result that lacks rows, from the rows that the stage keeps at the share that the
result states.

A row that is kept at some share is kept at every higher one (KR2), and a result states the largest
share that any of its batches lacked. So it has at least the rows that are kept at that share, and
no row twice: each of its sums is between theirs and the whole answer. With whole keys that is
exact for the keys that are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
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
    stage = pipeline.outputs[output].stage
    columns = list(zip(*[(*each, each.time_ms) for each in passages], strict=True))
    kept = kept_of(pipeline, stage, "passages", columns)
    if kept is None:
        return None
    places: Mapping[tuple[int, int], list[int]] = defaultdict(list)
    for place, each in enumerate(passages):
        places[(each.time_ms // window_ms + 1) * window_ms, each.gate].append(place)

    def least(window: tuple[int, int], shed: int) -> Result:
        mask = kept(shed)
        return result_of([passages[place] for place in places[window] if mask[place]])

    return least


def kept_of(
    pipeline: Pipeline, stage_name: str, source: str, columns: Iterable[Sequence[int]]
) -> Callable[[int], npt.NDArray[np.bool_]] | None:
    """Return a function of the per mille of rows that are left out: for each row of a source,
    whether the stage keeps it. None where it leaves out no rows of the source, or a function of the
    user chooses them.

    Args:
        pipeline: The pipeline.
        stage_name: Name of the stage.
        source: Name of the source.
        columns: Columns of its rows, in the order of its record, and event time in ms.
    """
    stage = pipeline.stages[stage_name]
    key = stage.shed.by.get(source)
    if stage.shed.kind not in ("rows", "keys") or key is None or source not in stage.reads:
        return None
    schema = source_schema(pipeline, source)
    table = pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
        schema=schema,
    )
    identities = row_hashes(table.select(list(key)) if key else table)
    salt = salt_of(stage.name)

    @cache
    def kept(shed: int) -> npt.NDArray[np.bool_]:
        return kept_mask(identities, salt, KEPT_ALL - shed)

    return kept


def is_sound(found: Result, least: Result, whole: Result) -> bool:
    """Whether each sum of a result is between those of the fewest rows that it may be made from and
    those of all rows.
    """
    return all(low <= value <= high for low, value, high in zip(least, found, whole, strict=True))
