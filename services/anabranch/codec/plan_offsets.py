"""Plans as Spark offsets: the offset of a query holds the whole plan of an input, so the query's
own log replays it exactly.

An offset is a JSON object. Spark writes it to its log before it runs the batch, and hands it out
again after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from anabranch.codec.part_lists import parts_from_json, parts_to_json
from anabranch.protocol.edge.shards import whole_of
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError
from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.stage.kept_rows import KEPT_ALL, check_kept
from anabranch.protocol.stage.planner import Plan, QueryPosition, TakenBucket

Offset = dict[str, Any]

INITIAL: Final[Offset] = {"sequence": 0, "bucket": 0, "has_rows": False, "taken": []}
"""Offset of every input before its first plan. Spark requests it twice, so it is constant."""


def position_of(offset: Offset) -> QueryPosition:
    """Return the position that an offset stands for.

    Raises:
        ConfigurationError: an earlier version of anabranch wrote it, when not all that had been
            read was closed.
    """
    if "closed" in offset:
        message = (
            "the checkpoint was made by an earlier version of anabranch, whose batches ran under"
            " the watermark of the batch before: remove the folders of the stage's replicas in the"
            " state directory; they then begin with the input"
        )
        raise ConfigurationError(message)
    return QueryPosition(offset["sequence"], offset["bucket"], offset["has_rows"])


def position_fields(offset: Offset) -> Offset:
    """Return the offset without its plan: enough to ask for the next one."""
    return {key: offset[key] for key in ("sequence", "bucket", "has_rows")}


def offset_of(plan: Plan, name: str) -> Offset:
    """Return the offset that makes a query run ``plan`` on input ``name``: on all streams that are
    read under this name. Only a tentative one says what kind it is and what is missing, and only
    one whose results lack rows says how many per mille, and how many it keeps itself.
    """
    after = plan.after
    offset = {
        "sequence": after.sequence,
        "bucket": after.bucket,
        "has_rows": after.has_rows,
        "taken": [
            [bucket, replica, parts_to_json(parts), stream]
            for stream, taken in plan.inputs
            if whole_of(stream) == name
            for bucket, replica, parts in taken
        ],
    }
    if plan.kind is BoundaryKind.TENTATIVE:
        offset |= {"kind": plan.kind.value, "missing": list(plan.missing)}
    if plan.shed:
        offset |= {"kept": plan.kept, "shed": plan.shed}
    return offset


def kind_of(offset: Offset) -> BoundaryKind:
    """Return whether the offset's plan is stable."""
    return BoundaryKind(offset.get("kind", BoundaryKind.STABLE))


def missing_of(offset: Offset) -> tuple[str, ...]:
    """Return the streams without which the offset's plan was made."""
    return tuple(offset.get("missing", ()))


def kept_of(offset: Offset) -> int:
    """Return the per mille of the rows that the offset's plan keeps.

    Raises:
        LocalProtocolError: the offset names no number of per mille.
    """
    kept = int(offset.get("kept", KEPT_ALL))
    check_kept(kept)
    return kept


def least_kept(offsets: Iterable[Offset]) -> int:
    """Return the smallest per mille that a batch with these ``offsets`` keeps of any input's rows.

    Raises:
        LocalProtocolError: as ``kept_of``.
    """
    return min(map(kept_of, offsets), default=KEPT_ALL)


def shed_of(offset: Offset) -> int:
    """Return the per mille of the input's rows that the results of the offset's plan lack."""
    return int(offset.get("shed", 0))


def taken_of(offset: Offset) -> list[TakenBucket]:
    """Return the buckets that the offset's plan takes, stream by stream."""
    return [taken for buckets in taken_by_stream(offset).values() for taken in buckets]


def taken_by_stream(offset: Offset) -> dict[str, list[TakenBucket]]:
    """Return the buckets that the offset's plan takes, by stream. Streams of which it takes none
    are left out.
    """
    found: dict[str, list[TakenBucket]] = {}
    for bucket, replica, parts, stream in offset["taken"]:
        found.setdefault(stream, []).append((bucket, replica, parts_from_json(parts)))
    return found


def rows_of(offsets: Iterable[Offset]) -> int:
    """Return the number of rows that a batch takes of its inputs. ``offsets``: of its sources. The
    rows of an input count once, however many sources read it.

    Raises:
        LocalProtocolError: two sources of one input take different rows of it.
    """
    by_stream: dict[str, list[TakenBucket]] = {}
    for offset in offsets:
        for stream, taken in taken_by_stream(offset).items():
            if by_stream.setdefault(stream, taken) != taken:
                message = f"two sources of one batch take different rows of {stream}"
                raise LocalProtocolError(message)
    return sum(part.rows for taken in by_stream.values() for _, _, parts in taken for part in parts)
