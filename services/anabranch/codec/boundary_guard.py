"""Validation of boundary records, whatever their bytes are: numbers out of range, lists and names
that are too long, and ranges that do not ascend are rejected.

Another participant may have written a record, so each is checked when it is decoded; and when it is
encoded, so that a bug here is found where it is. Costs what the record has.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol import limits
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.log.records import (
    NODE_CHANGES_MAX,
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    BranchNumber,
    BranchSnapshot,
    EpochStarted,
    GivenUp,
    LogEntry,
    LogSnapshot,
    Part,
    Recomputed,
)
from anabranch.protocol.stage.kept_rows import KEPT_ALL

POSITIONS_MAX: Final = 20_000
"""Maximum number of input positions in one boundary record, one per partition of a source's topics.
Bounded because every reader holds the last record of each writer.
"""


def check(entry: LogEntry) -> None:
    """Check that ``entry`` is within the limits and consistent, so that a writer may append it.

    Raises:
        RemoteProtocolError: ``entry`` is beyond a limit, or contradicts itself.
    """
    if isinstance(entry, EpochStarted):
        _check_texts(entry.replica, entry.fingerprint, entry.token, entry.node)
        _require(len(entry.schema) <= limits.SCHEMA_BYTES_MAX, "a schema that is too large")
        _check_versions(entry.version)
        _require(0 <= entry.bucket_ms <= limits.BUCKET_MAX, "a width out of range")
        _check_share(entry.share)
        _check_buckets(entry.rest_upto)
        _check_attempt(entry.attempt)
    elif isinstance(entry, BoundaryRecord):
        _check_record(entry)
    elif isinstance(entry, BranchEnded):
        _check_texts(entry.replica, entry.token)
        _check_number(entry.branch)
    elif isinstance(entry, Recomputed):
        _check_texts(entry.replica, entry.token)
        _require(entry.epoch >= 0, "an epoch out of range")
        _check_parts(entry.parts)
    else:
        _check_snapshot(entry)


def _check_snapshot(entry: LogSnapshot) -> None:
    _require(
        entry.as_of >= 0 and len(entry.replicas) <= limits.REPLICAS_MAX,
        "a log snapshot out of range",
    )
    _check_buckets(entry.forgotten, entry.past, entry.version_after, entry.rest_upto)
    _check_given_up(entry.given_up, limits.GIVEN_UP_MAX**2)
    _require(0 <= entry.bucket_ms <= limits.BUCKET_MAX, "a width out of range")
    _check_share(entry.share)
    _check_attempt(entry.attempt)
    _check_versions(entry.version, *(replica.version for replica in entry.replicas))
    for replica in entry.replicas:
        _check_texts(
            replica.replica,
            replica.fingerprint,
            replica.origin.tip_by,
            replica.origin.made_by,
            *(each.node for each in replica.origin.made_on),
            replica.history,
            *(ident.timeline for ident in (*replica.path, *replica.timelines)),
        )
        _require(replica.epoch >= -1, "an epoch out of range")
        origin = replica.origin
        _check_buckets(
            replica.closed,
            replica.base,
            origin.made_after,
            origin.gap or 0,
            origin.open_upto,
            origin.late_upto,
            *(each.after for each in origin.made_on),
        )
        _require(len(origin.made_on) <= NODE_CHANGES_MAX, "too many changes of the node")
        _require(len(replica.path) <= limits.CHAIN_RECORDS_MAX, "a chain that is too long")
        _require(len(replica.timelines) <= limits.TIMELINES_MAX, "too many timelines")
        _require(
            len(replica.pending) <= limits.PENDING_PARTS_MAX + limits.PARTS_PER_RECORD_MAX,
            "too many open parts",
        )
        for part in (*replica.closed_parts, *(part for _, part in replica.pending)):
            check_part(part)
        if replica.last is not None:
            _check_record(replica.last)
        if replica.branches is not None:
            _check_branches(replica.branches)
        for number in (replica.ended, replica.corrected):
            if number is not None:
                _check_number(number)
    for stable in entry.ranges:
        _check_texts(stable.replica)
        _check_range(stable.first, stable.last, stable.parts)


def _check_branches(entry: BranchSnapshot) -> None:
    _check_texts(entry.tip.timeline)
    _check_buckets(entry.closed, entry.upto, entry.first_upto)
    _check_number(entry.number)
    for _, part in entry.pending:
        check_part(part)
    upto = -1
    for covered in entry.ranges:
        _check_number(covered.branch)
        _check_missing(covered.missing)
        _check_shed(covered.shed)
        _check_range(covered.first, covered.last, covered.parts)
        _require(covered.first > upto, "ranges that do not ascend")
        upto = covered.last


def _check_range(first: int, last: int, parts: tuple[Part, ...]) -> None:
    _require(first <= last, "a range that ends before it begins")
    _check_buckets(first, last)
    for part in parts:
        check_part(part)
        _require(first <= part.bucket <= last, "a part outside of its range")


def _check_record(entry: BoundaryRecord) -> None:
    _check_texts(
        entry.replica, entry.token, entry.id.timeline, *(stream for stream, _ in entry.made_from)
    )
    _check_missing(entry.missing)
    if entry.prev is not None:
        _check_texts(entry.prev.timeline)
    _require(entry.epoch >= 0, "an epoch out of range")
    _check_buckets(entry.closed, entry.base or 0, entry.past)
    _require(
        (entry.branch is not None) == (entry.kind is BoundaryKind.TENTATIVE),
        "a branch that is not tentative, or a tentative record without",
    )
    _check_shed(entry.shed)
    _require(not entry.shed or entry.branch is not None, "a stable record that leaves out rows")
    if entry.branch is not None:
        _check_number(entry.branch)
        _require(entry.branch[0] == entry.epoch, "a branch of another epoch")
    _require(0 <= entry.heirs <= limits.SHARDS_MAX, "a number of shards out of range")
    _require(
        not entry.heirs or (entry.branch is None and entry.closed == limits.BUCKET_MAX),
        "a stream that ends, and does not close all buckets",
    )
    _require(len(entry.made_from) <= limits.INPUTS_MAX, "made from {} inputs", len(entry.made_from))
    _require(len(entry.positions) <= POSITIONS_MAX, "{} positions", len(entry.positions))
    _check_parts(entry.parts)
    _check_given_up(entry.given_up, limits.GIVEN_UP_MAX)
    for position in entry.positions:
        _check_texts(position.topic, position.topic_id)
        _check_buckets(position.found_after)
        _require(position.partition >= 0 and position.offset_next >= 0, "a position out of range")


def _check_given_up(given_up: tuple[GivenUp, ...], count_max: int) -> None:
    _require(len(given_up) <= count_max, "{} ranges that were given up", len(given_up))
    for each in given_up:
        _check_texts(each.source)
        _check_range(each.first, each.last, ())


def _check_missing(missing: tuple[str, ...]) -> None:
    _require(len(missing) <= limits.MISSING_STREAMS_MAX, "{} missing streams", len(missing))
    _check_texts(*missing)


def _check_shed(shed: int) -> None:
    _require(0 <= shed <= KEPT_ALL, "{} per mille of the rows left out", shed)


def _check_number(number: BranchNumber) -> None:
    _require(min(number) >= 0, "the number of a branch out of range")


def _check_buckets(*buckets: int) -> None:
    is_in_range = min(buckets) >= 0 and max(buckets) <= limits.BUCKET_MAX
    _require(is_in_range, "a bucket out of range: {}", buckets)


def _check_versions(*versions: int) -> None:
    _require(
        min(versions) >= 0 and max(versions) <= limits.STAGE_VERSION_MAX,
        "a version out of range: {}",
        versions,
    )


def _check_parts(parts: tuple[Part, ...]) -> None:
    _require(len(parts) <= limits.PARTS_PER_RECORD_MAX, "a boundary record of {} parts", len(parts))
    for part in parts:
        check_part(part)


def check_part(part: Part) -> None:
    """Check the numbers of a part.

    Raises:
        RemoteProtocolError: as ``check``.
    """
    if not (
        0 <= part.offset_first <= part.offset_next
        and 0 <= part.blocks <= part.offset_next - part.offset_first
        and part.rows >= 0
        and part.size_bytes >= 0
        and 0 <= part.bucket <= limits.BUCKET_MAX
        and 0 <= part.partition < limits.PARTITIONS_MAX
        and len(part.attempt) <= limits.NAME_CHARACTERS_MAX
        and 0 <= part.digest < 2**64
    ):
        raise RemoteProtocolError(f"a part out of range: {str(part)[:300]}")


def _check_texts(*texts: str) -> None:
    for text in texts:
        if len(text) > limits.NAME_CHARACTERS_MAX:
            raise RemoteProtocolError(f"a name of {len(text)} characters")


def _check_attempt(attempt: int) -> None:
    _require(-1 <= attempt <= limits.BUCKET_MAX, "an attempt to split a shard out of range")


def _check_share(share: str) -> None:
    _require(len(share) <= limits.SHARE_CHARACTERS_MAX, "a share whose text is too long")


def _require(holds: bool, what: str, *found: object) -> None:
    """Reject the record unless ``holds``, with the message ``what``, which names what was ``found``
    by ``{}``: the message is made only for a record that is rejected.
    """
    if not holds:
        raise RemoteProtocolError(what.format(*found))
