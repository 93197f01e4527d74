"""Change of an output's number of shards: how the work of the old shards ends, and where the new
ones begin.

Theory of operation. The shards of a number are a *generation* (``protocol.edge.shards``): processes
with transactional ids and progress topics of their own. A change is one step in the progress topic
of each old shard: the *end*. It repeats the run and the positions of the shard's last progress
record, and states the number of heirs. The first shard of the new number writes it, in a
transaction of the old shard's id: that fences the old process, and settles what it had open. An old
process that comes back either fences in turn, and then the heir writes its end anew; or it reads
the end, and stops before it writes anything. So an end is final. A shard that never recorded
anything gets an end without positions: it wrote no result unless another one had recorded where all
of its number begin (DE12).

Ends are written in the order of numbers, and of shards in each, each one after all before it were
seen to name the heirs that the file says. So of two files that differ one continues at most. The
other new shards wait for the ends. All that they and their replacements do follows from the ends:

For each partition, the last shard that recorded anything of it states up to where its ids are
written (DE2), and from which position on others may be found (DE4). These places may differ among
the partitions of the new shard, so it begins at the least one, and has a bound for each partition
(DE13). It goes through what it inherits as through a torn transaction: ids that it finds, or that
are before the bound, are not written again. It looks for them in the partitions of the topic of
rejected results of the old shards, too.

As long as some of what it inherits is ahead, its own progress says so (``inherited``). If it ends
meanwhile, its heirs need the earlier ends, too, and read them. After that they are not needed.

The live topic has one transactional id for all numbers. Its writer looks for an end of its shard
after it has fenced, and a new writer fences after the end is visible. So one of the two notices the
other.

Invariants:
    OH1 an end has the run and the positions of the shard's last progress record.
    OH2 no shard begins before all shards of earlier numbers have ended with the number of heirs
        that its file says.
    OH3 an id that an earlier shard wrote is before the bound of its partition, or stands at or
        after a position from which its heir reads back.
    OH4 an id before the bound of its partition was written, or left out by the output's beginning
        (DE9), or counts as written since retention has removed what a progress record names.
    OH5 as long as an id that an earlier shard wrote may be ahead, the progress of its heir says
        that it inherits.
    OH6 one shard of a number ends those of the numbers before, so heirs do not fence one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.protocol.control.records import DeliveryProgress
from anabranch.protocol.edge.delivery import (
    BEGINNING,
    REJECTED,
    Inherited,
    Left,
    begin_of,
    check_progress,
    end_of,
    has_run,
    is_of,
)
from anabranch.protocol.edge.shards import Shard
from anabranch.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class EndedShards:
    """A number of shards that an output had."""

    ends: tuple[DeliveryProgress, ...]
    """Final progress of each shard."""
    beginning: DeliveryProgress | None = None
    """Record of where they all began (DE12)."""


def end(
    process: str, last: DeliveryProgress | None, heirs: int, now_ms: int, life: str = ""
) -> DeliveryProgress:
    """Return the record that ends a shard (OH1) in the stream's ``life``. ``last``: its newest
    progress in it.
    """
    if last is None:
        last = DeliveryProgress(process, BEGINNING.bucket, BEGINNING.bucket - 1, (), now_ms)
    return replace(last, heirs=heirs, written_ms=now_ms, life=life)


def ends_earlier(shard: Shard) -> bool:
    """Return whether ``shard``, of the newest number, is the one that ends the earlier shards
    (OH6).
    """
    return shard.index == 0


def has_ended(
    output: str, numbers: Sequence[int], generation: int, progress: DeliveryProgress | None
) -> bool:
    """Return whether a shard of ``generation`` has ended, given its newest ``progress``.

    Raises:
        ConfigurationError: with other heirs than the file's ``numbers`` say (OH2).
    """
    heirs = 0 if progress is None else progress.heirs
    if heirs not in (0, *numbers[generation : generation + 1]):
        known = [*numbers[:generation], heirs]
        raise ConfigurationError(
            f"output {output} has {heirs} shards by now, and the pipeline file says"
            f" {numbers[0] if len(numbers) == 1 else list(numbers)}: write `shards: {known}`, and"
            " behind them each number that it is to have after that"
        )
    return heirs > 0


def check_earlier(
    output: str,
    numbers: Sequence[int],
    generation: int,
    shard: Shard,
    progress: DeliveryProgress | None,
    partitions: int,
) -> None:
    """Check that ``progress`` is of ``shard`` of an earlier ``generation``, as the file's
    ``numbers`` describe it, before anything is written (OH2).

    Raises:
        ConfigurationError: the shard has ended for another number of shards, or delivered other
            ``partitions``.
    """
    ended = has_ended(output, numbers, generation, progress)
    if progress is None or not progress.positions:
        return
    if not (ended or has_run(progress) or is_of(progress, partitions) or shard.count > 1):
        # One shard alone begins anew in a topic with other partitions. Several cannot: each would
        # have to find out by itself what the others do.
        raise ConfigurationError(
            f"output {output}: its topic has {partitions} partitions by now, and its number of"
            " shards has changed, too; it has delivered nothing yet: start it once with"
            " `shards: 1`, so that it begins with these partitions, and change the number after"
            " that"
        )
    check_progress(output, progress, partitions, shard)


def inherits(progress: DeliveryProgress | None) -> bool:
    """Return whether a shard whose own progress is ``progress`` needs the state that earlier shards
    left (OH5).
    """
    return progress is None or bool(progress.inherited)


def inherited(
    output: str,
    shard: Shard,
    partitions: int,
    before: Sequence[EndedShards],
    own: DeliveryProgress | None = None,
) -> Inherited | None:
    """Return what ``shard`` inherits (OH3, OH4); None if no earlier shard has begun, so that none
    has written anything.

    Args:
        output: Name of the output, for messages.
        shard: Shard of the newest number of shards.
        partitions: Number of partitions of the corrected topic.
        before: Ended shards of each earlier number of shards, oldest first.
        own: Newest progress of ``shard`` itself.

    Raises:
        ConfigurationError: the shards in ``before`` are not those of the progress records, or
            progress records are lost.
    """
    left: dict[int, Left] = {}
    rejected: dict[int, dict[int, int]] = {}
    own_rejected = 0
    for ended in before:
        count = len(ended.ends)
        if shard.index < count:
            at = dict(ended.ends[shard.index].positions).get(REJECTED, 0)
            own_rejected = max(own_rejected, at)
        for partition in filter(shard.has, range(partitions)):
            index = partition % count
            last = ended.ends[index]
            if last.positions:
                at = check_progress(output, last, partitions, Shard(index, count))[partition]
                if last.inherited and partition not in left:
                    raise _lost(output)
                looks = rejected[partition] if last.inherited else {}
                left[partition] = _after(left.get(partition) if last.inherited else None, last, at)
                mine = dict(last.positions).get(REJECTED, 0)
                rejected[partition] = {**looks, index: min(mine, looks.get(index, mine))}
            elif partition in left:  # what it may have written nevertheless
                rejected[partition].setdefault(index, 0)
            elif ended.beginning is not None:
                left[partition] = Left(begin_of(ended.beginning), 0, ())
                rejected[partition] = {index: 0}
    if not left and own is None:
        return None
    if not left:
        raise _lost(output)
    together = {shard.index: own_rejected}
    for looks in rejected.values():
        for index, at in looks.items():
            together[index] = min(at, together.get(index, at))
    return Inherited(left, together)


def _lost(output: str) -> ConfigurationError:
    return ConfigurationError(
        f"output {output}: shards have begun with what earlier ones left, and the progress topics"
        " of these are empty: restore them, or use a new output name to deliver everything again"
    )


def _after(before: Left | None, last: DeliveryProgress, position: int) -> Left:
    """Return the state of a partition after a shard that ended with ``last``. ``before`` is what
    that shard had inherited itself, and not passed.
    """
    run = (position, end_of(last))
    if before is None:
        return Left(begin_of(last), position, (run,))
    return Left(max(before.written, begin_of(last)), position, (*before.runs, run))
