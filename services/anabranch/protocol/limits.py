"""The bounds that several modules share, each with its unit and the failure that it prevents. A
bound of one module stands in that module. ``anabranch limits`` prints this module.
"""

from __future__ import annotations

from typing import Final

MIB: Final = 1024 * 1024

RECORD_DEPTH_MAX: Final = 16
"""Nesting of a JSON value: deeper ones can exhaust a parser's stack."""

RECORD_ITEMS_MAX: Final = 100_000
"""Items of all arrays and maps in one record: an item may take one byte there and a hundred in a
decoder's memory.
"""

RECORD_FIELDS_MAX: Final = 500
"""Fields of a record schema, nested records' included: bounds the cost of a row and its digest."""

SCHEMA_BYTES_MAX: Final = 64 * 1024
"""Text of a schema: a schema is read by every service at start."""

BLOCK_ROWS_MAX: Final = 65_536
"""Rows of a block: bounds what a reader must hold to check one block."""

RECORD_BYTES_ON_BROKER_MAX: Final = 16 * MIB
"""Largest record that is sent or fetched whole: twice the largest boundary record, four times
the largest block.
"""

RANGE_PARTITION_BYTES: Final = 256 * 1024
"""Maximum size of one partition's share in the answer to a reader of blocks, in bytes
(``max.partition.fetch.bytes`` of readers of ranges). About this much is fetched beyond each range,
and wasted where the next range is elsewhere. Where a quota limits the readers of a stream, the
broker is silent after an answer for as long as the quota needs for it; a quota that needs more than
a second makes every batch wait for seconds.
"""

PARTS_PER_RECORD_MAX: Final = 20_000
"""Parts of one boundary record, about 2 MiB: a source ends its batch earlier, a stage says it
in pieces (``protocol.log.writer``).
"""

PENDING_PARTS_MAX: Final = 1_000_000
"""Named parts of one writer's open buckets: every reader of the stream holds them (about 300
bytes each). A record beyond it is rejected.
"""

TIMELINES_MAX: Final = 4_096
"""Timelines of one epoch whose records the log state knows again: each fork begins one. Those
first seen longest ago are forgotten.
"""

MISSING_STREAMS_MAX: Final = 256
"""Streams named as missing in one record: a pipeline has fewer sources."""

GIVEN_UP_MAX: Final = 256
"""Sources, and ranges of buckets of each, that are kept of what operators gave up in a stream:
every reader holds them for good. Each is a person's command; neighbouring ranges are one.
"""

PARTITIONS_MAX: Final = 1_024
"""Partitions of an internal stream: each costs memory in every reader."""

CORES_MAX: Final = 1_024
"""Maximum number of cores of a node: each is a thread and a worker process, and a mistyped number
would take the machine down.
"""

REPLICAS_MAX: Final = 16
"""Replicas of a stage: each writes its own blocks and its records are read by all."""

INPUTS_MAX: Final = 16
"""Streams that a stage reads: each input costs a Python process in Spark, each shard of a source or
stage a follower of its log.
"""

SHARDS_MAX: Final = 16
"""Maximum number of shards of one source, stage or output: each shard of a stage reads its inputs
whole, each of an output all blocks of its stage, and a stage reads no more streams (INPUTS_MAX).
"""

SHARE_CHARACTERS_MAX: Final = 4_000
"""Length of the text by which a shard states in its log which rows it takes: room for the columns
of INPUTS_MAX inputs. Each log snapshot holds it once.
"""

BATCH_ROWS_MAX: Final = 1_000_000
"""Rows that one batch of a stage takes, beyond its first bucket: bounds the memory of a batch
while a backlog is drained.
"""

ROW_BYTES_WEIGHED: Final = 256
"""Size in bytes up to which a row counts as one where rows stand for memory or work; a larger one
counts as several. So a batch of BATCH_ROWS_MAX has 256 MB at most.
"""

CHAIN_RECORDS_MAX: Final = 4_096
"""Records of a writer's chain that the log state remembers, the deepest rewind (rule 4). Spark
retains fewer batches than this. The parts that older records named stay, while their buckets are
open (PENDING_PARTS_MAX).
"""

CHECKPOINT_BATCHES_RETAINED: Final = 200
"""``minBatchesToRetain`` of Spark: the deepest rollback of a stage, in batches. Must stay
below CHAIN_RECORDS_MAX.
"""

EVENT_TIME_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: later times do not fit Spark's timestamp."""

BUCKET_MAX: Final = EVENT_TIME_MS_MAX
"""The last bucket of the year 9999 in buckets of 1 ms: higher numbers in a record are
nonsense, and might not fit 64 bits as times.
"""

RECORD_BYTES_MAX: Final = 1 * MIB
"""Maximum size of a user's record, where the file states no other: larger ones are dead letters
before they are decoded, so that one record cannot exhaust a decoder's memory.
"""

KEY_AND_HEADERS_BYTES: Final = 1 * MIB
"""Key and headers of a user's record, for which a topic that is created has room beside the
largest value.
"""

MESSAGE_BYTES_DEFAULT: Final = 1_048_588
"""A broker's own default of ``max.message.bytes``, where a topic's settings do not name it."""

DEAD_LETTER_CUT_BYTES: Final = 32 * 1024
"""Value of a dead letter whose original its topic rejects, else one record would stop a source for
ever. With it, what is left of key and headers fits into DEAD_LETTER_ROOM_BYTES.
"""

DEAD_LETTER_CUT_MORE_BYTES: Final = 4 * 1024
"""Key of such a dead letter, and its own headers together: beyond it these are left out."""

NAME_CHARACTERS_MAX: Final = 249
"""Any name in a boundary or control record: as long as the longest topic name, so that names
cannot be used to fill memory.
"""

SNAPSHOT_EVERY_RECORDS: Final = 10_000
"""Number of records between two log snapshots of a boundary log, and the minimum that trimming
leaves. A start reads two or three times as many, in about a second. They hold what a copy of a
peer's checkpoint needs of its last batches (REPLICAS_MAX * CHECKPOINT_BATCHES_RETAINED).
"""

SNAPSHOT_ITEMS_MAX: Final = 400_000
"""Items of all lists in one record of a boundary log: decoding a hostile one stays below a
few hundred MiB.
"""

CONTROL_BYTES_MAX: Final = 512 * 1024
"""A heartbeat, alarm or progress record."""

CONTROL_ITEMS_MAX: Final = 4_096
"""Items of all lists in one control record."""

HOPS_MAX: Final = 64
"""Stages one after the other: more than any pipeline has, so what is above is a slip of the pen."""

DELIVERY_BUCKETS_MAX: Final = 2_000
"""Non-empty buckets of one transaction of delivery: bounds the blocks that delivery requests at
once.
"""

HEARTBEAT_LIFETIME_MS: Final = 10_000
"""A process that was not heard of for so long is not in the index any more."""

HOP_MS: Final = 600
"""Time of a stage from its input to its output while a branch and a successor share its cores, in
ms. A stage waits shorter by this much for each stage after it, so that their tentative buckets are
in time (as in Borealis' Delay, Process, and Correct). Measured on two shared cores.
"""

CLUSTER_ANSWER_MS: Final = 500
"""A question to another owner's cluster that has no answer for so long says that its streams are
silent. Longer, and the wait for them cannot be over in time where nobody answers; shorter, and a
far cluster would seem away.
"""

CLUSTER_REQUEST_MS: Final = 2_000
"""The same where nothing waits: when a log there is opened, looked up, or has stopped within a
read.
"""

CLUSTER_AGAIN_MS: Final = 1_000
"""Interval between two requests to a cluster that does not answer, in ms."""

HEARTBEAT_EVERY_MS: Final = 500
"""Interval between two heartbeats of a process without news, in ms: four may be lost before others
take it for dead.
"""

HEARTBEAT_SEND_MS: Final = 5_000
"""After a heartbeat could not be sent: until the next attempt, so that a broker in trouble
does not hold up the sender's own work.
"""

FAILURE_AFTER_MS: Final = 2_000
"""Observed silence after which a replica is FAILURE to others: too short takes the slow for
dead, too long delays upstream selection and corrections.
"""

TRIM_EVERY_MS: Final = 10_000
"""Interval between two trim points of a stream, in ms: shorter would free no space worth having."""

WRITE_TRIES_MAX: Final = 8
"""Attempts of which the broker does not say what became of them, before a writer gives up: at half
a minute each less than the time after which a loop that does not come round is ended without a word
(``process.frame``).
"""

ASK_BUCKETS_MAX: Final = 2_000
"""Non-empty buckets that one request is for: bounds what is recomputed at once. The next request is
for what is gone beyond them.
"""

RECOMPUTE_MS_MAX: Final = 180_000
"""The longest that recomputing a range, or warming up, may take: a replica has room for one query
beside its own.
"""

PASSIVE_BEAT_MS: Final = 250
"""Interval between two heartbeats without news of a standby, or of a process whose silence others
wait for, in ms: a part of PRIMARY_SILENT_MS.
"""

LONG_SILENT_MS: Final = 5_000
"""Silence after which a replica that was moved, or a stage under a contract, begins elsewhere,
perhaps without its state; and that of a primary that has just begun. So it takes more than
PRIMARY_SILENT_MS.
"""

STAGE_VERSION_MAX: Final = 1_000_000
"""``version`` of a stage: far more than anybody raises by hand, and small enough for a
schema's int.
"""
