"""Sources that may keep few blocks: whether they stop where their readers are too far behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from anabranch.codec.blocks import BlockHeaders
from anabranch.ingestion.service import LOOK_WAIT_MS
from checkers import pushed_back, streams
from simulation.faults import EVERYTHING
from simulation.hurrying import COUNT_KEPT_MS
from simulation.raw_logs import boundary_log
from simulation.world import Run

_ROUND_MS: Final = 300
"""Time of a source to write what it has read, in ms."""


def check(run: Run) -> list[str]:
    """Check sources that nothing befell: other records count as late, or are written late. Return
    what is wrong.
    """
    kept_max = run.options.kept_max
    if kept_max is None:
        return []
    struck = {fault.target for fault in run.faults}
    wrong: list[str] = []
    for source in run.options.sources:
        if not struck & {f"ingestion/{source}", EVERYTHING}:
            run.history.reached("push back judged")
            look_ms = COUNT_KEPT_MS + LOOK_WAIT_MS + _ROUND_MS
            wrong += pushed_back.check(source, _moments(run, source), kept_max, look_ms)
    return wrong


def _moments(run: Run, source: str) -> Iterator[tuple[int, bool, int]]:
    """(time, whether the source wrote a block then, those before its first one of an open bucket),
    at every change.
    """
    names = run.pipeline.topic_names
    blocks, boundaries = names.blocks(source, "0"), names.boundaries(source)
    accepted = dict(streams.read(boundary_log(run, source), ["0"]).writers["0"].accepted)
    closed = 0
    kept: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for at_ms, _, what, (topic, partition, offset, *_) in (
        each for each in run.history.events if each.what in ("append", "delete")
    ):
        at, place = int(partition or 0), int(offset or 0)
        if topic == boundaries and what == "append" and place in accepted:
            closed = max(closed, accepted[place].closed)
        elif topic != blocks:
            continue
        elif what == "append":
            kept[at][place] = _bucket(run, blocks, at, place)
        else:
            for each in sorted(kept[at])[:place]:
                del kept[at][each]
        yield (
            at_ms,
            topic == blocks and what == "append",
            sum(
                next((n for n, each in enumerate(sorted(of)) if of[each] > closed), len(of))
                for of in kept.values()
            ),
        )


def _bucket(run: Run, topic: str, partition: int, offset: int) -> int:
    gone = run.trimmed.get((topic, partition, offset))
    record = gone or run.log.topics[topic][1][partition].at(offset)
    return BlockHeaders.decode(record.headers).bucket
