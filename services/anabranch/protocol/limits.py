"""Limits that several modules share, each with its unit and the failure that it prevents.

A limit of one module is in that module. ``anabranch limits`` prints this one.
"""

from __future__ import annotations

from typing import Final

MIB: Final = 1024 * 1024

RECORD_DEPTH_MAX: Final = 16
"""Maximum nesting of a JSON value: a deeper one can exhaust a parser's stack."""

RECORD_ITEMS_MAX: Final = 100_000
"""Maximum number of items of all arrays and maps in one record: an item may take one byte there and
a hundred in a decoder's memory.
"""

RECORD_FIELDS_MAX: Final = 500
"""Maximum number of fields of a record schema, nested ones included. Bounds the cost of a row and
its digest.
"""

SCHEMA_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a schema's text, in bytes: every service reads schemas at its start."""

BLOCK_ROWS_MAX: Final = 65_536
"""Maximum number of rows of a block. Bounds what a reader must hold to check one block."""

RECORD_BYTES_ON_BROKER_MAX: Final = 16 * MIB
"""Maximum size of a record that is sent or fetched whole, in bytes: twice the largest boundary
record, four times the largest block.
"""

RANGE_PARTITION_BYTES: Final = 256 * 1024
"""Maximum size of one partition's share in the answer to a reader of blocks, in bytes
(``max.partition.fetch.bytes`` of readers of ranges). About this much is fetched beyond each range,
and wasted where the next range is elsewhere. Where a quota limits the readers of a stream, the
broker is silent after an answer for as long as the quota needs for it; a quota that needs more than
a second makes every batch wait for seconds.
"""

PARTS_PER_RECORD_MAX: Final = 20_000
"""Maximum number of parts of one boundary record, about 2 MiB. A source ends its batch before; a
stage divides its record into several (``protocol.log.writer``).
"""

PENDING_PARTS_MAX: Final = 1_000_000
"""Maximum number of named parts in one writer's open buckets: every reader of the stream holds
them, about 300 bytes each. A record beyond it is rejected.
"""

TIMELINES_MAX: Final = 4_096
"""Maximum number of timelines of one epoch whose records the log state recognises: each fork begins
one. Those first seen longest ago are forgotten.
"""

MISSING_STREAMS_MAX: Final = 256
"""Maximum number of streams that one record names as missing: more than a pipeline has sources."""

GIVEN_UP_MAX: Final = 256
"""Maximum number of sources, and of ranges of buckets for each, that a stream remembers as given up
by operators: every reader holds them for good. Each takes a person's command; neighbouring ranges
count as one.
"""

PARTITIONS_MAX: Final = 1_024
"""Maximum number of partitions of an internal stream: each costs memory in every reader."""

CORES_MAX: Final = 1_024
"""Maximum number of cores of a node: each is a thread and a worker process, and a mistyped number
would take the machine down.
"""

REPLICAS_MAX: Final = 16
"""Maximum number of replicas of a stage: each writes blocks of its own, and every reader reads the
records of all.
"""

INPUTS_MAX: Final = 16
"""Maximum number of streams that a stage reads: each input costs a Python process in Spark, and
each shard of a source or stage a follower of its log.
"""

SHARDS_MAX: Final = 16
"""Maximum number of shards of one source, stage or output: each shard of a stage reads its inputs
whole, each of an output all blocks of its stage, and a stage reads no more streams (INPUTS_MAX).
"""

SHARE_CHARACTERS_MAX: Final = 4_000
"""Maximum length of the text by which a shard states in its log which rows it takes: room for the
columns of INPUTS_MAX inputs. Each log snapshot holds it once.
"""

BATCH_ROWS_MAX: Final = 1_000_000
"""Maximum number of rows that one batch of a stage takes beyond its first bucket. Bounds the memory
of a batch while a backlog is drained.
"""

ROW_BYTES_WEIGHED: Final = 256
"""Size in bytes up to which a row counts as one where numbers of rows stand for memory or work. A
larger row counts as several, so a batch of BATCH_ROWS_MAX has at most 256 MB.
"""

CHAIN_RECORDS_MAX: Final = 4_096
"""Number of records of a writer's chain that the log state remembers: the deepest rewind (rule 4).
Spark retains fewer batches. Parts that older records named are kept while their buckets are open
(PENDING_PARTS_MAX).
"""

CHECKPOINT_BATCHES_RETAINED: Final = 200
"""``minBatchesToRetain`` of Spark: the deepest rollback of a stage, in batches. Must stay
below CHAIN_RECORDS_MAX.
"""

EVENT_TIME_MS_MAX: Final = 253_402_300_799_999
"""Last millisecond of the year 9999: later times do not fit Spark's timestamp."""

BUCKET_MAX: Final = EVENT_TIME_MS_MAX
"""Last bucket of the year 9999 in buckets of 1 ms: a higher number in a record is invalid, and
might not fit 64 bits as a time.
"""

RECORD_BYTES_MAX: Final = 1 * MIB
"""Maximum size of a user's record, where the file states no other: larger ones are dead letters
before they are decoded, so that one record cannot exhaust a decoder's memory.
"""

KEY_AND_HEADERS_BYTES: Final = 1 * MIB
"""Allowance for the key and headers of a user's record beside the largest value, in bytes, in
topics that are created.
"""

MESSAGE_BYTES_DEFAULT: Final = 1_048_588
"""Default of ``max.message.bytes`` in brokers, for topics whose settings do not name it."""

DEAD_LETTER_CUT_BYTES: Final = 32 * 1024
"""Size to which the value of a dead letter is truncated that its topic rejects whole, in bytes:
otherwise one record would stop a source for ever. With it, what is left of key and headers fits
into DEAD_LETTER_ROOM_BYTES.
"""

DEAD_LETTER_CUT_MORE_BYTES: Final = 4 * 1024
"""Maximum size of such a dead letter's key and own headers together, in bytes: larger ones are left
out.
"""

NAME_CHARACTERS_MAX: Final = 249
"""Maximum length of any name in a boundary or control record, in characters: that of the longest
topic name, so that names cannot fill memory.
"""

SNAPSHOT_EVERY_RECORDS: Final = 10_000
"""Number of records between two log snapshots of a boundary log, and the minimum that trimming
leaves. A start reads two or three times as many, in about a second. They hold what a copy of a
peer's checkpoint needs of its last batches (REPLICAS_MAX * CHECKPOINT_BATCHES_RETAINED).
"""

SNAPSHOT_ITEMS_MAX: Final = 400_000
"""Maximum number of items of all lists in one record of a boundary log, so that decoding a hostile
record takes less than a few hundred MiB.
"""

CONTROL_BYTES_MAX: Final = 512 * 1024
"""Maximum size of a heartbeat, an alarm or a progress record, in bytes."""

CONTROL_ITEMS_MAX: Final = 4_096
"""Maximum number of items of all lists in one control record."""

HOPS_MAX: Final = 64
"""Maximum number of stages one after the other: more than any pipeline has, so a higher number is a
typing mistake.
"""

DELIVERY_BUCKETS_MAX: Final = 2_000
"""Maximum number of non-empty buckets of one transaction of delivery. Bounds the blocks that
delivery requests at once.
"""

HEARTBEAT_LIFETIME_MS: Final = 10_000
"""Time after its last heartbeat at which a process is removed from the index, in ms."""

HOP_MS: Final = 600
"""Time of a stage from its input to its output while a branch and a successor share its cores, in
ms. A stage waits shorter by this much for each stage after it, so that their tentative buckets are
in time (as in Borealis' Delay, Process, and Correct). Measured on two shared cores.
"""

CLUSTER_ANSWER_MS: Final = 500
"""Timeout for a request to another owner's cluster, in ms, after which its streams count as silent.
A longer one would outlast the wait for them when nothing answers; with a shorter one a distant
cluster would seem away.
"""

CLUSTER_REQUEST_MS: Final = 2_000
"""Timeout for a request to another owner's cluster for which nothing waits, in ms: when a log there
is opened or looked up, or has stopped within a read.
"""

CLUSTER_AGAIN_MS: Final = 1_000
"""Interval between two requests to a cluster that does not answer, in ms."""

HEARTBEAT_EVERY_MS: Final = 500
"""Interval between two heartbeats of a process without news, in ms: four may be lost before others
take it for dead.
"""

HEARTBEAT_SEND_MS: Final = 5_000
"""Pause after a heartbeat that could not be sent until the next attempt, in ms, so that a broker in
trouble does not hold up the sender's own work.
"""

FAILURE_AFTER_MS: Final = 2_000
"""Observed silence of a replica, in ms, after which others count it as in FAILURE. A shorter one
takes slow replicas for dead; a longer one delays upstream selection and corrections.
"""

TRIM_EVERY_MS: Final = 10_000
"""Interval between two trim points of a stream, in ms. Shorter ones would free no space worth
having.
"""

WRITE_TRIES_MAX: Final = 8
"""Maximum number of consecutive write attempts with unknown outcomes, after which the writer fails.
At half a minute each they take less time than that after which a stuck loop is ended
(``process.frame``).
"""

ASK_BUCKETS_MAX: Final = 2_000
"""Maximum number of non-empty buckets in one request for recomputation. Bounds what is recomputed
at once; the next request is for what is missing beyond them.
"""

RECOMPUTE_MS_MAX: Final = 180_000
"""Maximum duration of a recomputation of a range, or of a warm-up, in ms: a replica has room for
one query beside its own.
"""

PASSIVE_BEAT_MS: Final = 250
"""Interval between two heartbeats without news, in ms, of a standby and of a process whose silence
others wait for: a fraction of PRIMARY_SILENT_MS.
"""

LONG_SILENT_MS: Final = 5_000
"""Silence, in ms, after which a replica that was moved, or a stage under a contract, begins
elsewhere, perhaps without its state; also the silence after which a primary that has just begun is
replaced. Longer than PRIMARY_SILENT_MS for these reasons.
"""

STAGE_VERSION_MAX: Final = 1_000_000
"""Largest ``version`` of a stage: far more than a person raises by hand, and small enough for an
Avro int.
"""
