"""Waits that are cut short, and limits that are low, so that what follows from them happens
within a run.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any, Final

from anabranch.codec import blocks
from anabranch.delivery import service as delivery
from anabranch.ingestion import service as ingestion
from anabranch.processing import standby as standby_process
from anabranch.protocol import limits
from anabranch.protocol.control import halving, idle_node, scaling, trimming
from anabranch.protocol.edge import delivery as corrected_delivery
from anabranch.protocol.edge import ingestion as ingestion_machine
from anabranch.protocol.edge import live_delivery, source_batches
from anabranch.protocol.log import unread_logs, writer, writer_state
from anabranch.protocol.stage import (
    owners_checkpoint,
    recomputation,
    splitting,
    standby,
    transfer,
)
from anabranch.protocol.stage import replica as replica_machine
from anabranch.protocol.stage.recomputation import ASK_TAKEN_MS, RequestState
from anabranch.streams import boundary_reader
from simulation import notes, scaled
from simulation.moving import BEHIND_MS
from simulation.options import Options
from simulation.scenarios import SPLIT

OPEN_AGAIN_MS: Final = 1_000
"""In place of the interval between two openings of a log that has lost records."""
HALF_MS: Final = 4_000
"""In place of the time after which a silent half of a shard holds nothing back any more."""
READER_MS: Final = 60_000
"""In place of the day after which a silent reader holds trimming back no more: longer than
any fault, shorter than clocks may differ.
"""


TRIM_SPANS_MAX: Final = 64
"""Buckets of a partition whose place is remembered: beyond it neighbours are joined."""
COUNT_KEPT_MS: Final = 300
"""Between two counts of the blocks that a source has in its topics, where they are to be few."""

PRIMARY_SILENT_MS: Final = 2_000
ASK_PATIENCE_MS: Final = {
    RequestState.SENT: 5_000,
    RequestState.TAKEN: ASK_TAKEN_MS,
    RequestState.RECOMPUTED: 5_000,
    RequestState.REJECTED: 5_000,
}
STANDBY_TURN_MS: Final = 600
FEED_EVERY_MS: Final = 150
"""In place of FEED_MOVE_EVERY_MS and MOVED_FETCH_EVERY_MS: a move must come near enough."""
STORE_AGAIN_MS: Final = 500
_FEW: Final = 8
"""Records in a fetch of a boundary log, in place of thousands: a log of a run takes several."""
MOVE_STALLED_MS: Final = 6_000
"""Longer than the faults of a move last, but for a node that is gone for good."""
TRANSFER_FIRST_MS: Final = 1_500
TRANSFER_STALLED_MS: Final = 1_000
TRANSFER_MS_MAX: Final = 2_000
"""Less than the time that a contract lets a stage start in."""
SPLIT_STALLED_MS: Final = 5_000
SPLIT_MS_MAX: Final = 15_000
SPLIT_AGAIN_MS: Final = 1_500
_SEGMENTS_PART: Final = 0.25
_SEGMENT_BYTES: Final = (150, 300, 500)
"""Sizes of a segment, of which a seed has one: a block has two to ten."""
_SYNC_EVERY_MS: Final = (500, 1_500, 3_000, 3_000, 6_000, 30_000)
"""Intervals in place of STORE_EVERY_MS, of which a seed has one."""


def _sync_every_ms(options: Options) -> int:
    """Interval between syncs of a checkpoint: a run is short, and of two lives each is shorter. In
    some of those with a move only what is stored for it is stored at all.
    """
    if options.scenario == "moved" and options.has_store and options.seed % 2:
        return _SYNC_EVERY_MS[-1]
    if options.has_two_lives or options.has_store:
        return _SYNC_EVERY_MS[options.seed % 2 * options.has_store]
    return random.Random(f"{options.seed}/sync").choice(_SYNC_EVERY_MS)


def _segment_bytes_max(options: Options) -> int | None:
    """Return the size above which blocks go in segments, in one of four seeds; None: no block of a
    run does. Not where a source may keep few blocks: it counts their records.
    """
    chance = random.Random(f"{options.seed}/segments")
    if options.kept_max is not None or chance.random() >= _SEGMENTS_PART:
        return None
    return chance.choice(_SEGMENT_BYTES)


@contextlib.contextmanager
def hurried(options: Options) -> Iterator[None]:
    """Within it they are as ``options`` say."""
    is_recomputing = options.scenario == "asked for"
    is_passive = any(stage.ha == "passive" for stage in options.stages)
    is_scaled, is_split = options.is_scaled, options.scenario == SPLIT
    changed: list[tuple[Any, str, object]] = [
        (scaling, "NODE_LOST_MS", scaled.NODE_LOST_MS if is_scaled else None),
        (scaling, "NODE_START_MS", scaled.NODE_START_MS if is_scaled else None),
        (scaling, "BEGIN_MS_MAX", scaled.BEGIN_MS_MAX if is_scaled else None),
        (idle_node, "IDLE_FOR_MS", scaled.IDLE_FOR_MS if is_scaled else None),
        (splitting, "STALLED_MS", SPLIT_STALLED_MS if is_split else None),
        (splitting, "SPLIT_MS_MAX", SPLIT_MS_MAX if is_split else None),
        (halving, "SPLIT_AGAIN_MS", SPLIT_AGAIN_MS if is_split else None),
        (blocks, "ROW_BYTES_MAX", notes.ROW_BYTES_MAX if options.has_notes else None),
        (blocks, "BLOCK_BYTES_MAX", notes.BLOCK_BYTES_MAX if options.has_notes else None),
        (blocks, "_SEGMENT_BYTES_MAX", _segment_bytes_max(options)),
        (recomputation, "_PATIENCE_MS", ASK_PATIENCE_MS if is_recomputing else None),
        (unread_logs, "OPEN_AGAIN_MS", OPEN_AGAIN_MS),
        (writer, "SEEN_WAIT_MS", options.seen_wait_ms),
        (source_batches, "BACKLOG_RECORDS", options.backlog_records),
        (ingestion_machine, "BLOCKS_KEPT_MAX", options.kept_max),
        (ingestion, "COUNT_KEPT_EVERY_MS", None if options.kept_max is None else COUNT_KEPT_MS),
        (standby, "MOVED_BEHIND_MS", BEHIND_MS),
        (standby, "PRIMARY_SETTLED_MS", 0 if is_passive else None),
        (standby, "PRIMARY_SILENT_MS", PRIMARY_SILENT_MS if is_passive else None),
        (standby, "STANDBY_TURN_MS", STANDBY_TURN_MS if is_passive else None),
        (standby_process, "STANDBY_COPY_EVERY_MS", 400 if is_passive else None),
        (boundary_reader, "_FETCH_RECORDS", _FEW if options.scenario == "new column" else None),
        (transfer, "STORE_EVERY_MS", _sync_every_ms(options)),
        (transfer, "FEED_MOVE_EVERY_MS", FEED_EVERY_MS),
        (transfer, "FEED_STANDBY_EVERY_MS", 400),
        (transfer, "STORE_AGAIN_MS", STORE_AGAIN_MS),
        (transfer, "MOVE_STALLED_MS", MOVE_STALLED_MS),
        (standby_process, "MOVED_FETCH_EVERY_MS", FEED_EVERY_MS),
        (owners_checkpoint, "TRANSFER_FIRST_MS", TRANSFER_FIRST_MS),
        (owners_checkpoint, "TRANSFER_STALLED_MS", TRANSFER_STALLED_MS),
        (owners_checkpoint, "TRANSFER_MS_MAX", TRANSFER_MS_MAX),
        (standby_process, "_REACH_EVERY_MS", FEED_EVERY_MS if options.has_store else None),
        (trimming, "TRIM_EVERY_MS", options.trim_every_ms),
        (trimming, "TRIM_READER_MS", READER_MS),
        (trimming, "TRIM_HALF_MS", HALF_MS if is_split else None),
        (trimming, "TRIM_SPANS_MAX", TRIM_SPANS_MAX),
        (limits, "SNAPSHOT_EVERY_RECORDS", options.snapshot_every),
        (live_delivery, "REC_DONE_WAIT_MS", options.rec_done_wait_ms),
        (corrected_delivery, "DELIVERY_BYTES_MAX", options.run_bytes_max),
        (delivery, "BESIDE_LIVE_ROWS_MAX", options.beside_live_rows_max),
        (writer, "BRANCH_PENDING_PARTS_MAX", options.inherited_parts_max),
        (replica_machine, "INPUT_PARTS_MAX", options.input_parts_max),
        (writer_state, "CHAIN_RECORDS_MAX", options.chain_records_max),
        *(
            (module, "PARTS_PER_RECORD_MAX", options.record_parts_max)
            for module in (limits, writer, source_batches)
        ),
    ]
    before = [vars(module)[name] for module, name, _ in changed]
    for module, name, value in changed:
        if value is not None:
            vars(module)[name] = value
    try:
        yield
    finally:
        for (module, name, _), value in zip(changed, before, strict=True):
            vars(module)[name] = value
