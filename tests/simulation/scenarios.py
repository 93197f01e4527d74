"""Situations that chance alone seldom makes, or never: some seeds are given to them. What of
the table below is in a seed follows from its number.
"""

from __future__ import annotations

import random
from typing import Final

SCALED: Final = "scaled"
"""Scenario in which the manager moves a replica by itself."""
SPLIT: Final = "split"
"""Scenario in which a shard of a stage is split while it runs."""
READ_WHILE_SHED: Final = "overloaded chain"
"""Scenario in which another stage reads what an overloaded one shows."""
OVERLOADS: Final = ("overload", READ_WHILE_SHED)
"""Scenarios in which a stage gets more rows than it can process."""

CHANCES: Final[dict[str, int]] = {
    "chain": 25,
    "second failure": 20,
    "flapping": 12,
    "never back": 8,
    "stage down": 12,
    "branch fails": 15,
    "blocks deleted": 12,
    "recovery twice": 15,
    "forged": 15,
    "far rows": 15,
    "quiet gap": 15,
    "ahead": 15,
    "given up": 12,
    "deep join": 12,
    "moved": 15,
    "outvoted": 12,
    "passive": 15,
    "two outputs": 20,
    "upstream backup": 15,
    "amnesia": 15,
    "asked for": 15,
    "upgraded": 12,
    "end trimmed": 12,
    "slow corrections": 12,
    "added late": 12,
    "pushed back": 12,
    "resharded": 20,
    "output resharded": 20,
    "input gone": 3,
    "made anew": 15,
    "input recreated": 10,
    "arrival": 10,
    SCALED: 15,
    "outlived": 10,
    "overload": 20,
    "too large": 12,
    "delta": 6,
    "new column": 10,
    "own bounds": 20,
    READ_WHILE_SHED: 15,
    SPLIT: 20,
}
"""Number of seeds, of 1 000, that are one of

chain: two or three stages one after the other, with up to three replicas each, under the usual
faults; second failure: one input comes back while another has fallen silent, so that corrections
begin and come to a second hole; flapping: an input falls silent and comes back again and again,
each time for longer than the wait; never back: an input that falls silent for good; stage down: all
replicas of a stage die at the same time, and come back later, in half of these seeds one of them
earlier, without its disk, and out of reach of the disks of the others; branch fails: what only a
branch does kills it, or it cannot begin; blocks deleted: while delivery is away, blocks that it has
not read are deleted, or hold other rows than their writer's record says, and a peer has them too;
recovery twice: delivery's transaction is torn, and the outcome of the smaller one that repairs it
is unknown; forged: while a branch runs, records of all kinds that nobody should have written, and
one that comes twice; far rows: a stage whose rows belong to a bucket far ahead dies again and
again, and only few records of its chain are remembered; in most of these seeds a record names few
parts, so that one batch has several; quiet gap: all producers say nothing for a while, and stages
that are not batch-safe come to the many empty buckets at once; ahead: a record of a producer whose
clock is in front, and otherwise nothing wrong, or one silent partition; given up: as never back,
until an operator gives up what the input owes; then it comes back after all, with all that it had;
deep join: a stage joins a source with a stream that has gone through three or four slow stages, and
mostly nothing is wrong; moved: a replica is moved to another node, perhaps back again, and either
node dies, is paused, cut off or overtaken meanwhile; outvoted: one of three replicas computes wrong
rows from some time on, until its process ends; passive: the processes of a stage stand by for one
another, and the primary dies, is paused or cut off, or its disk is lost, or one of the others is
struck while it copies, or a standby goes on from an older checkpoint than another one claims to
have; two outputs: of one stream, of a stream and one before it, or of streams
that have nothing in common, under the usual faults, and mostly the delivery of one is down for a
while, or one reader begins seconds after all others; upstream backup, amnesia: a stage that saves
its state nowhere else loses its disk, perhaps again while it makes its state anew, and makes it
from its input, or gives up what it cannot make; asked for: while delivery is away, all blocks are
deleted that it has not read, and it asks the replicas to make them again, or all of a stream are
lost, of the stage or of a source whose reader is away, and their partitions grow past them;
upgraded: the replicas of a stage get another version of its function one after the other: some are
restarted with it, others go on with the old one until the new one counts; in half of the seeds its
windows come of other sums, so that no replica goes on from the state of the old one, which is then
deleted; end trimmed: who reads a stage is away while its branch ends, and mostly until the record
that says so is trimmed; slow corrections: the replicas of a stage with long batches correct one
after the other, and the end of the failure is told when the first has done so; added late: blocks
of the inputs are deleted before the processes of a stage begin for the first time, and one of them
is struck when it has; or all are away before the first result, and further blocks are deleted
meanwhile; pushed back: a source may keep few blocks, and who reads it is away for so long that it
has to leave its input unread; resharded: the sources get another number of shards, once or twice,
and every process gets the file that says so at a time of its own, while something else is wrong,
too; output resharded: the same of the output; input gone: while the ingestion of a source is away,
retention deletes what it has not read, and in the end an operator gives that up; made anew: all
processes end, and the topics of the pipeline, or those of its streams, or those of its stages, are
deleted and created again, while the disks, the index and all other topics stay; input recreated:
the topic of an input is deleted and created again while the pipeline runs, and in the end an
operator gives up what is missing of it; arrival: event time is the arrival, by the clocks of
leaders, which are wrong, and jump forth and back with every new leader; scaled: the manager moves a
replica to a node of the pool because its node is busy or lost, perhaps for good, and back, while
the nodes and the manager are struck; outlived: as made anew, but some processes of the first life
go on for a while; overload: for a while more rows come than a stage can process in time, and an
input falls silent or a replica dies meanwhile, or before; too large: some rows of a stage are
larger than its stream holds, so that notices are in their place, under the usual faults; delta:
four sources and five stages, which join inputs of different depth, under the usual faults; new
column: a stage gets a further column while it runs, and then the stage after it a version that
needs it; own bounds: of two outputs one has a longer ``max_delay``, and an input falls silent for
longer than the other one's, mostly for less than that of the patient one; overloaded chain: as
overload, and another stage reads what the overloaded one shows, and in half of the seeds is
overloaded, too; split: a shard is split because an operator wants it, once or again, or since the
manager finds that no move helps it, while its nodes, those of the halves and the manager are
struck; in some seeds the function is not key by key, or a half is slower than the shard, or an
operator moves the shard meanwhile.
"""


def of(seed: int) -> str:
    """Return the scenario of a seed; empty for none, chance alone."""
    number = random.Random(f"{seed}/scenarios").randrange(1_000)
    for name, chance in CHANCES.items():
        if number < chance:
            return name
        number -= chance
    return ""


_GOES_BACK: Final = 0.35
"""Share of the seeds of passive stages in which a standby goes on from an older checkpoint than
another process claims to have.
"""


def goes_back(seed: int) -> bool:
    """Return whether in a seed of passive stages one goes back so."""
    return random.Random(f"{seed}/goes back to older").random() < _GOES_BACK
