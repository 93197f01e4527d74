"""Every upper bound, with its unit and the failure that it prevents."""

from __future__ import annotations

from typing import Final

MIB: Final = 1024 * 1024

RECORD_BYTES_MAX: Final = 1 * MIB
"""A user's record: larger ones are dead letters before they are decoded, so that one record
cannot exhaust a decoder's memory.
"""

RECORD_DEPTH_MAX: Final = 16
"""Nesting of a JSON value: deeper ones can exhaust a parser's stack."""

SCHEMA_DEPTH_MAX: Final = 8
"""Records, arrays and maps within each other in a record schema: each costs a call per value and a
level of every column. Below RECORD_DEPTH_MAX.
"""

RECORD_ITEMS_MAX: Final = 100_000
"""Items of all arrays and maps in one record: an item may take one byte there and a hundred in a
decoder's memory.
"""

RECORD_FIELDS_MAX: Final = 500
"""Fields of a record schema, those of nested records included: bounds the cost of one row and of its digest."""

SCHEMA_BYTES_MAX: Final = 64 * 1024
"""Text of a schema: a schema is read by every service at start."""

BLOCK_BYTES_MAX: Final = 4 * MIB
"""A block as a Kafka record, before compression: above it a block is split. Below the topics'
``max.message.bytes``.
"""

BLOCK_ROWS_MAX: Final = 65_536
"""Rows of a block: bounds what a reader must hold to check one block."""

BOUNDARY_BYTES_MAX: Final = 8 * MIB
"""A boundary record as a Kafka record: rejected unread above it."""

RECORD_BYTES_ON_BROKER_MAX: Final = 16 * MIB
"""Largest record that is sent or fetched whole: twice the largest boundary record, four times
the largest block.
"""

PARTS_PER_RECORD_MAX: Final = 20_000
"""Parts of one boundary record, about 2 MiB: a source ends its batch earlier, a stage says it
in pieces (``protocol.log.record_pieces``).
"""

PIECES_MAX: Final = 1_000
"""Records in which one batch of a stage is written: far more parts than the memory of a stage
holds. Well below CHAIN_RECORDS_MAX: a batch that is run again continues the record before its first
piece.
"""

PENDING_PARTS_MAX: Final = 1_000_000
"""Named parts of one writer's open buckets: every reader of the stream holds them (about 300
bytes each). A record beyond it is rejected.
"""

PENDING_PARTS_HOLD: Final = 800_000
"""From so many open parts on a source reads only what holds its boundary back, until half of them
are closed. The rest of PENDING_PARTS_MAX is for what is read on the way there: a record beyond that
limit would end the source.
"""

TENTATIVE_PARTS_MAX: Final = 400_000
"""Parts of one writer's tentative buckets that a reader holds: a failure may last for days.
The oldest ones are not served any more.
"""

BLOCKS_KEPT_MAX: Final = 4_000_000
"""Blocks of one source that are in its topics since a reader still needs them. From so many on the
source reads nothing more, until half of them are deleted: what producers send stays in their own
topics, whose retention is theirs (DPC: full buffers block, and push back to the source). Ten times
what a stage takes of its inputs (INPUT_PARTS_MAX), so new results have stood still for days; beyond
it the brokers' disks would fill.
"""

INPUT_PARTS_MAX: Final = 400_000
"""Parts of stable buckets that a stage holds of all its inputs together while it waits for one of
them: 400 bytes each, 750 where two replicas write the input. Some fourteen hours of two inputs in
500 ms buckets of two partitions. Beyond that it reads only what it waits for, so that new results
stand still too.
"""

TENTATIVE_RANGES_MAX: Final = 20_000
"""Ranges of one writer's tentative buckets: a writer that names other missing streams in
every record must not make readers grow.
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

POSITIONS_MAX: Final = 20_000
"""Input positions in one boundary record, one per partition of a source's topics: every
reader holds the last record of each writer.
"""

PARTITIONS_MAX: Final = 1_024
"""Partitions of an internal stream: each costs memory in every reader."""

CORES_MAX: Final = 1_024
"""Of a node: each is a thread and a worker process, and a mistyped number would take the
machine down.
"""

REPLICAS_MAX: Final = 16
"""Replicas of a stage: each writes its own blocks and its records are read by all."""

INPUTS_MAX: Final = 16
"""Streams that a stage reads: each input costs a Python process in Spark, each shard of a source
a follower of its log.
"""

BATCH_ROWS_MAX: Final = 400_000
"""Rows that one batch of a stage takes, beyond its first bucket: bounds the memory of a batch
while a backlog is drained.
"""

BATCH_BUCKETS_MAX: Final = 4_096
"""Non-empty buckets that one batch of a stage takes: bounds the plan that Spark writes to its
log.
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

PIPELINE_FILE_BYTES_MAX: Final = 256 * 1024
"""Text of a pipeline file: every service reads it at start."""

PARAMETER_VALUES_MAX: Final = 10_000
"""Values in the parameters of a stage: YAML aliases can make a small file unfold into a huge
one.
"""

OFFERED_CHARACTERS_MAX: Final = 1_000
"""Characters of a text that another participant gives a stage as a parameter: it is in every plan of
the owner's Spark.
"""

OFFERED_PARAMETERS_MAX: Final = 64
"""Parameters of a stage that is offered to others: each is an argument of a function."""

OFFERED_ROWS_PER_S_MAX: Final = 10_000_000
"""Of what an offer takes: more than any node runs, so what is above is a slip of the pen."""

LOOK_EVERY_MS: Final = 400
"""Pause between two looks at the end of a quiet input partition: all that are due are one
request to each broker.
"""

LOOK_WAIT_MS: Final = 500
"""What a look at all quiet partitions may take: where a leader has died the partitions of the
others are not to wait for it. Below LOOK_FRESH_MS.
"""

FIND_PARTITIONS_EVERY_MS: Final = 2_000
"""Between two questions for partitions that a topic got: records of one that is not known yet
may get a later time than theirs. One small request.
"""

COUNT_KEPT_EVERY_MS: Final = 30_000
"""Between two counts of the blocks that a source has in its topics, two questions for each
partition: BLOCKS_KEPT_MAX is days away.
"""

LOOK_FRESH_MS: Final = 1_000
"""A look older than this says nothing about now: a boundary must not pass a partition on what
was seen before a pause of the process.
"""

LOOK_GAP_MS: Final = 2_500
"""Silence with a longer hole between two looks was not observed: it may have been an outage
of the broker, and is counted anew.
"""

HEARTBEAT_AHEAD_MS: Final = 86_400_000
"""How far a producer's heartbeat may be in front of all that its source has said where
``max_ahead`` is unlimited: a day. One from the year 2100 would close its partition for good.
Simulated time that jumps further has a record there.
"""

END_SILENCE_MS: Final = 2_000
"""Observed silence after which finite data counts as read to its end, so that a producer that
pauses a moment does not lose its last records.
"""

WAITING_AFTER_MS: Final = 1_000
"""Silence of the partition that holds the boundary back before it is named to people: shorter
ones are how records come.
"""

ERROR_CHARACTERS_MAX: Final = 1_000
"""Characters of an explanation in a header of a dead letter: the value may have to fit the
topic's limit with it.
"""

MESSAGE_BYTES_DEFAULT: Final = 1_048_588
"""A broker's own default of ``max.message.bytes``, where a topic's settings do not name it."""

DEAD_LETTER_ROOM_BYTES: Final = 64 * 1024
"""By so much a dead-letter topic must take larger records than the input: for the headers
that say why, and for other compression than the user's.
"""

DEAD_LETTER_CUT_BYTES: Final = 32 * 1024
"""Value of a dead letter whose original its topic rejects, else one record would stop a source for
ever. With it, what is left of key and headers fits into DEAD_LETTER_ROOM_BYTES.
"""

DEAD_LETTER_CUT_MORE_BYTES: Final = 4 * 1024
"""Key of such a dead letter, and its own headers together: beyond it these are left out."""

SOURCE_BATCH_RECORDS: Final = 65_536
"""Records that ingestion takes at once from a backlog: bounds its memory and the time until a
boundary moves.
"""

SOURCE_BATCH_BYTES: Final = 64 * MIB
"""About how many bytes ingestion takes at once from a backlog, by the size of the records
before: bounds its memory where records are large.
"""

APPEND_EVERY_MS: Final = 50
"""Least time between two boundary records of a live source, where the next bucket is about to
close: bounds the growth of the boundary log, and what each round costs a source, the broker and
every reader.
"""

APPEND_OPEN_EVERY_MS: Final = 250
"""The same where nothing is about to close, or the boundary stands still: bounds the size of a
round, and the open parts that every reader holds (at 20 records a second they would reach
PENDING_PARTS_MAX within hours). Below the shortest wait of a stage, which sees by them that the
source goes on.
"""

EMPTY_EVERY_MS: Final = 300
"""Least time between a batch of a stage without state and one that reads no rows: a batch costs
much the same whatever it holds, and one that holds nothing is in the way of the next result. Half
of HOP_MS, since stages after it wait for what it closes.
"""

WARM_UP_BATCHES: Final = 3
"""Empty batches that a standby runs before it stands by. With three, results come 7 to 9 s
after it becomes the primary; without, 15 (two cores).
"""

KEEP_WARM_EVERY_MS: Final = 40_000
"""Between two empty batches of one that stands by: Spark ends Python workers that are idle for
60 s, and the next batch would start them and import everything again.
"""

NAME_CHARACTERS_MAX: Final = 249
"""Any name in a boundary or control record: as long as the longest topic name, so that names
cannot be used to fill memory.
"""

SNAPSHOT_EVERY_RECORDS: Final = 10_000
"""Between two log snapshots of a boundary log, and at least so many records are left of it: a start
reads two or three times as many, in about a second. So many hold what a copy of a peer's checkpoint
needs of its last batches (REPLICAS_MAX * CHECKPOINT_BATCHES_RETAINED).
"""

SNAPSHOT_EVERY_PARTS: Final = 100_000
"""Named parts after which a log snapshot is written although few records came: large records
must not make a start slow, nor the manager grow.
"""

SNAPSHOT_LATE_RECORDS: Final = 1_000
"""Records between what a log snapshot covers and the snapshot: a reader that begins holds so
many back (about a MiB). A later one does not count.
"""

SNAPSHOT_BYTES_MAX: Final = 15 * MIB
"""A log snapshot as a Kafka record: below the ``max.message.bytes`` of a boundary log."""

SNAPSHOT_ITEMS_MAX: Final = 400_000
"""Items of all lists in one record of a boundary log: decoding a hostile one stays below a
few hundred MiB.
"""

CONTROL_BYTES_MAX: Final = 512 * 1024
"""A heartbeat, alarm or progress record."""

CONTROL_ITEMS_MAX: Final = 4_096
"""Items of all lists in one control record."""

FEDERATION_BYTES_MAX: Final = 256 * 1024
"""A contract, an entry of a ledger, an offer: room for as many tasks as a contract may name."""

FEDERATION_ITEMS_MAX: Final = 1_000
"""Items of all lists in such a record: tasks, or findings."""

HOPS_MAX: Final = 64
"""Stages one after the other: more than any pipeline has, so what is above is a slip of the pen."""

CATALOG_BYTES_MAX: Final = 512 * 1024
"""What a participant publishes of one pipeline: room for the columns of a hundred streams, and below
the ``max.message.bytes`` of a catalog.
"""

CATALOG_ITEMS_MAX: Final = 4_096
"""Items of all lists in it: streams, offers, and what these name."""

ALARM_CHARACTERS_MAX: Final = 20_000
"""Text of an alarm: longer ones (a traceback of a deep recursion) are cut, so that an alarm
always fits its topic.
"""

DELIVERY_ROWS_MAX: Final = 100_000
"""Rows of one transaction of delivery: bounds its memory, its time (well below the
transaction time-out) and what a recovery reads back.
"""

DELIVERY_BYTES_MAX: Final = 64 * MIB
"""Keys and values of one transaction of delivery, by the mean of what was written before:
bounds memory where records are large.
"""

DELIVERY_BUCKETS_MAX: Final = 2_000
"""Non-empty buckets of one transaction of delivery: bounds the blocks that are asked for at
once.
"""

RECOVERY_IDS_MAX: Final = 5_000_000
"""Ids that a recovery of delivery holds in memory. Only a lost progress topic makes it read
more than a few transactions back.
"""

COMPARED_BUCKETS_MAX: Final = 20_000
"""Non-empty buckets of one replica whose digests wait for a peer: a replica that is down must
not make the manager's memory grow.
"""

ALARMS_PER_PAIR_MAX: Final = 100
"""Alarms about one pair of replicas: where every bucket differs a person needs to know once,
not for every bucket.
"""

INDEXED_BOUNDARIES_MAX: Final = 4_096
"""Boundary records of one writer that the index finds by bucket: older ones are found by
reading the log.
"""

HEARTBEATS_MAX: Final = 4_096
"""Processes whose last heartbeat the manager remembers: names come from a topic that many may
write.
"""

HEARTBEAT_LIFETIME_MS: Final = 10_000
"""A process that was not heard of for so long is not in the index any more."""

HOP_MS: Final = 600
"""What a stage takes from its input to its output while a branch and a successor share its cores; a
stage waits so much shorter per stage after it, that the tentative bucket of the stage before is
there in time (as in Borealis' Delay, Process, and Correct). Measured on two shared cores.
"""

PACE_OVER_MS: Final = 10_000
"""Over so long it is measured how fast a source's boundary moves: short, since a source that
has caught up goes on as fast as the clock.
"""

PACE_LEAST_MS: Final = 1_000
"""Over less nothing is measured: one chunk of a backlog holds any span of time."""

PACE_CATCH_UP_MS: Final = 1_000
"""By so much a source goes on while nothing is read: records that came are late by differing
amounts, and no other may follow for a minute. Records further in front are not waited for in
silence.
"""

HOP_LONGEST_MS: Final = 1_500
"""The most that is waited for a stage that one input of another has gone through and another has
not, in place of HOP_MS: a stage that takes longer is late itself, and waiting for it would make all
that comes after it late.
"""

LAG_SAMPLES: Final = 61
"""Buckets over which the lag of an input is measured; its median counts, so that the thirty
of a failure do not.
"""

SUCCESSOR_AFTER_MS: Final = 2_000
"""After the first tentative rows of a branch its successor is not started for so long: starting a
query takes the cores for a second or two, which the stages after this one need for their first
tentative results.
"""

SUCCESSOR_WITHOUT_ROWS_TIMES: Final = 5
"""How many times longer the successor of a branch waits that closes buckets and gives no rows, as
between the ends of windows: the rows are what somebody waits for. Not until they come at any price:
when the input is back, a successor that is running begins to correct two seconds sooner.
"""

SLACK_MS: Final = 400
"""Part of ``max_delay`` that no stage may use for waiting: scheduling, delivery, and a
garbage collection.
"""

STALL_MS: Final = 1_000
"""A replica that has not looked at its inputs for longer was paused itself: that time is not
a failure of its inputs.
"""

CAUGHT_UP_MS: Final = 1_000
"""A successor that is less than this behind what is complete has caught up: about the time of
two small batches.
"""

CORRECTION_STEP_MS: Final = 10_000
"""Over so long a correction must have come nearer, or its branch leaves it more of the cores:
longer than a few batches and what varies with them.
"""

CORRECTION_STEPS_SERVED: Final = 2
"""Such steps without coming nearer after which a branch is suspended where a peer serves, or where
it cannot hold its bound either: one of them was paced.
"""

CORRECTION_STEPS_ALONE: Final = 4
"""The same where the branch is all that serves new results in time: without an end to it the
results before would never be corrected.
"""

CORRECTION_ROWS_MAX: Final = 100_000
"""Rows of one batch while a branch runs beside it: a larger one keeps the cores longer than
``max_delay`` allows the branch to stand still. What comes within the long wait may be more
(``protocol.stage.replica``, RE9).
"""

HEARTBEAT_EVERY_MS: Final = 500
"""Between two heartbeats of a process that has no news: four may be lost before others take
it for dead.
"""

HEARTBEAT_NEWS_MS: Final = 50
"""Least time between two heartbeats with news: a state that flaps must not flood the control
topic.
"""

HEARTBEAT_SEND_MS: Final = 5_000
"""After a heartbeat could not be sent: until the next attempt, so that a broker in trouble
does not hold up the sender's own work.
"""

CONTROL_WAIT_MS: Final = 1_000
"""What the manager waits for the broker to take a fence or a trim point: where the broker is
away its other work must go on.
"""

FAILURE_AFTER_MS: Final = 2_000
"""Observed silence after which a replica is FAILURE to others: too short takes the slow for
dead, too long delays upstream selection and corrections.
"""

OBSERVED_STEP_MS: Final = 1_000
"""The most that one look counts towards a time-out about others. Below FAILURE_AFTER_MS, so
that nobody is dead right after a pause.
"""

BRANCH_RETRY_MS: Final = 1_000
"""After a branch died of what may pass, blocks or a broker that are away: until another one
is tried, twice as long each time at the same hole.
"""

BRANCH_RETRY_MAX_MS: Final = 30_000
"""The longest of these pauses: a fork costs a copy of the checkpoint and the start of a query."""

CORRECTION_TURN_MS: Final = 1_000
"""A replica that could correct leaves so much time to those with lower ids that could, too,
and are not heard to yet.
"""

CORRECTION_STALL_MS: Final = 30_000
"""A replica that corrects, or could, without progress for so long is not waited for: one that
hangs must not keep all others waiting.
"""

LIVE_ROWS_MAX: Final = 3_000
"""Rows of stable, and of new tentative, buckets that one live transaction takes beyond the
first: what comes next waits so long for it.
"""

UNDO_ROWS_MAX: Final = 1_000_000
"""Rows of the live transaction that begins corrections, which shows again what is not corrected: it
must end well below the transaction time-out, or it would never end.
"""

BESIDE_LIVE_ROWS_MAX: Final = 3_000
"""Rows of one transaction of the corrected topic where a live topic is served beside it: a
live result may have to wait so long (about 20 ms).
"""

LIVE_CHUNK_ROWS: Final = 20_000
"""Rows that are read and rendered at once for a live transaction: bounds its memory, not its
size.
"""

LIVE_HOLD_MS: Final = 200
"""How long a tentative bucket that has had the long wait is held back while a peer of its replica
says that it is STABLE: the stable one is then about to come. Part of SLACK_MS.
"""

UNREADABLE_BUCKETS_MAX: Final = 1_000
"""Tentative buckets that could not be read and are not tried again: a replica whose blocks
are lost must not make delivery grow.
"""

UPSERT_BYTES_MAX: Final = 1_024 * MIB
"""Keys and values that the upsert view of a live topic holds in memory, to know what to
restore: beyond it the process would be killed.
"""

TRIM_READER_MS: Final = 86_400_000
"""A reader that was not heard for so long holds trimming back no more, else one that never
returns would fill the disks. It re-enters by a copy.
"""

TRIM_EVERY_MS: Final = 10_000
"""Between two trim points of a stream: more of them would free no more space worth having."""

WRITE_TRIES_MAX: Final = 8
"""Attempts of which the broker does not say what became of them, before a writer gives up: at half
a minute each less than the time after which a loop that does not come round is ended without a word
(``runtime.service``).
"""

READ_BACK_SILENT_MS: Final = 240_000
"""Without a record for so long reading back gives up, with what it waits for: longer than
transactions of ours are open, and as short as the above.
"""

NODE_WAITS_MS: Final = 60_000
"""For a broker that starts beside it, and for whoever makes the topics; then a node says what
is missing and ends, since a mistyped name stays missing.
"""

CHECKPOINT_SYNC_EVERY_MS: Final = 30_000
"""Between two syncs of a checkpoint: blocks are trimmed only below what is synced, so this bounds
what is kept for a restart after a loss of power; a sync costs the disk whatever was written since
the last.
"""

BRANCH_PENDING_PARTS_MAX: Final = 10_000
"""Open parts that a branch can inherit: its first record repeats them, while live results
wait for it. A stage with more waits for its input.
"""

STILL_AFTER_MS: Final = 10_000
"""A source's boundary that has not moved for so long stands still: a partition is silent, or
cut off. Then nothing says when the next bucket closes.
"""

ASK_BUCKETS_MAX: Final = 2_000
"""Non-empty buckets that one request is for: bounds what is recomputed at once. What is gone
beyond them is asked for afterwards.
"""

ASKS_MAX: Final = 64
"""Recompute requests that a replica holds, one per reader: names come from a topic that many
may write.
"""

ASK_TURN_MS: Final = 3_000
"""Until the next replica of a stage takes a request that the one before has not taken."""

ASK_AGAIN_MS: Final = 15_000
"""A request that nobody has taken is repeated: it was lost, or nobody was there."""

ASK_TAKEN_MS: Final = 180_000
"""A request that somebody has taken is repeated: whoever took it has died, or hangs. Also the
longest that recomputing a range may take.
"""

ASK_REJECTED_MS: Final = 60_000
"""A request that no replica could serve is repeated: a replica may have come back that can."""

PASSIVE_REPLICAS_MIN: Final = 2
"""Processes of a stage with ``ha: passive``: with fewer nobody stands by."""

STATE_HORIZON_MS_MAX: Final = 86_400_000
"""The longest ``state_horizon`` of a stage: so much input, and as much again, is kept for a
process that lost its disk.
"""

PRIMARY_SILENT_MS: Final = 1_500
"""Silence of a primary after which a standby becomes the primary. Six of its heartbeats, for a slow
one must not be taken for dead: a wrong failover costs it a restart, though never a result.
"""

PASSIVE_BEAT_MS: Final = 250
"""Between two heartbeats without news of a process that stands by, or whose silence others wait
for: a part of PRIMARY_SILENT_MS.
"""

PRIMARY_SETTLED_MS: Final = 15_000
"""So long after its epoch began a primary is given LONG_SILENT_MS: it catches up, the node that was
lost starts again, and the processors are never busier. Also the least time between two failovers
that a machine with too much to do causes after PRIMARY_SILENT_MS.
"""

LONG_SILENT_MS: Final = 5_000
"""Silence after which a replica that was moved, or a stage under a contract, begins elsewhere,
perhaps without its state; and that of a primary that has just begun. So it takes more than
PRIMARY_SILENT_MS.
"""

MAKES_WAY_MS: Final = 4_000
"""The longest that a node which is started again leaves the processors to a standby that becomes
the primary: the start of Java takes all of two, for as long as a failover lasts.
"""

STANDBY_TURN_MS: Final = 2_000
"""Between the turns of two standbys: the first needs so long until the others have seen its
epoch, else they would end one another.
"""

STANDBY_COPY_EVERY_MS: Final = 5_000
"""Between two copies of the primary's checkpoint: bounds what is run again after a failover;
a copy syncs the disk and looks through the state.
"""

MOVED_BEHIND_MS: Final = 5_000
"""A replica that is moved becomes the primary when it can go on from at most so far behind the one
that runs: a few batches, which it runs again.
"""

PLACEMENT_LOOK_MS: Final = 500
"""Between two looks of a node at the log of moves."""

FLOAT_ROWS_MAX: Final = 20_000
"""Rows of a bucket whose floating-point numbers are compared between two replicas: larger
ones would cost the manager more than they show.
"""

FLOAT_SAMPLE_EVERY_MS: Final = 10_000
"""Between two such comparisons of a stream: a plan whose replicas drift apart does so in
every bucket.
"""

STAGE_VERSION_MAX: Final = 1_000_000
"""``version`` of a stage: far more than anybody raises by hand, and small enough for a
schema's int.
"""

SOCKET_PATH_BYTES_MAX: Final = 103
"""Of the path of a socket: one byte more, and another system than Linux (107) could not bind
it; a stage would end at its start.
"""
