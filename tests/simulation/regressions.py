"""Runs that failed once, with what was wrong: the options and the faults themselves, so that
they stay what they are when seeds draw differently.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from simulation.faults import Fault
from simulation.options import Options, StageOptions


class Regression(NamedTuple):
    """One run."""

    was: str
    options: Options
    faults: list[Fault]


_MOSTLY: Final = Options(
    seed=0,
    sources=("a",),
    source_partitions=1,
    partitions=2,
    output_partitions=2,
    bucket_ms=300,
    max_delay_ms=1600,
    buckets=14,
    rows_max=4,
    out_of_orderness_ms=0,
    hostile_percent=0,
    late="dead_letter",
    idle_ms=None,
    stages=(),
    is_live=True,
    is_upsert=False,
    has_manager=True,
    latency_max_ms=1,
    heal_ms=5_000,
    trim_every_ms=10000,
    snapshot_every=10000,
    seen_wait_ms=1000,
    scenario="",
    run_bytes_max=None,
    inherited_parts_max=None,
    input_parts_max=None,
    grown_ms=None,
    chain_records_max=None,
    record_parts_max=None,
    output_bytes_max=None,
    ahead=(0, 0),
    quiet=(0, 0),
    edge_percent=0,
    source_idle_ms=None,
    max_ahead_ms=None,
)
"""What most of them have, every option said: a default that changes must not change a run.
Each says what it has otherwise.
"""

REGRESSIONS: Final = (
    Regression(
        "a reader stood before blocks that had been trimmed, and took what it wanted for missing",
        replace(
            _MOSTLY,
            seed=5,
            out_of_orderness_ms=50,
            stages=(
                StageOptions(
                    name="s0",
                    reads=("a",),
                    operator="both",
                    replicas=2,
                    is_batch_safe=False,
                    policy="suspend",
                ),
                StageOptions(
                    name="s1",
                    reads=("s0",),
                    operator="both",
                    replicas=1,
                    is_batch_safe=True,
                    policy="process",
                ),
            ),
            is_live=False,
            heal_ms=5700,
        ),
        [
            Fault(2517, "twins", "delivery/out", 4, 1373),
            Fault(4511, "race", "processing/s1.0", 1, 835),
        ],
    ),
    Regression(
        "a stage without state moved its rows to a later bucket, and the tentative one named"
        " nothing as missing",
        replace(
            _MOSTLY,
            seed=433,
            sources=("a", "b"),
            bucket_ms=250,
            buckets=8,
            stages=(
                StageOptions(
                    name="s0",
                    reads=("a", "b"),
                    operator="both",
                    replicas=1,
                    is_batch_safe=True,
                    policy="suspend",
                ),
                StageOptions(
                    name="s1",
                    reads=("s0",),
                    operator="later",
                    replicas=2,
                    is_batch_safe=False,
                    policy="process",
                ),
            ),
            is_upsert=True,
            latency_max_ms=5,
            heal_ms=7000,
            trim_every_ms=300,
            snapshot_every=10,
        ),
        [
            Fault(0, "silent all", "a", 0, 5000),
            Fault(270, "hostile", "s1", 3, 277),
            Fault(890, "silent", "a", 3, 1854),
            Fault(921, "write applied", "ingestion/a", 12, 260),
            Fault(1377, "write part", "ingestion/b", 9, 114),
            Fault(1505, "silent all", "b", 17, 1217),
            Fault(2124, "cut_from", "processing/s1.0", 13, 6000),
            Fault(2493, "cut_from", "ingestion/a", 13, 83),
            Fault(2749, "write rejected", "ingestion/a", 2, 6000),
            Fault(3101, "commit applied", "delivery/out", 8, 259),
            Fault(3445, "cut", "ingestion/b", 3, 6000),
            Fault(6880, "fork zombie", "processing/s1.0", 17, 71),
            Fault(6880, "silent all", "b", 3, 2781),
        ],
    ),
    Regression(
        "the same, with two sources",
        replace(
            _MOSTLY,
            seed=22128,
            sources=("a", "b"),
            source_partitions=2,
            partitions=1,
            output_partitions=3,
            bucket_ms=200,
            max_delay_ms=2500,
            rows_max=1,
            stages=(
                StageOptions(
                    name="s0",
                    reads=("a", "b"),
                    operator="later",
                    replicas=3,
                    is_batch_safe=True,
                    policy="process",
                ),
            ),
            heal_ms=4300,
            snapshot_every=10,
            seen_wait_ms=100,
        ),
        [
            Fault(818, "silent", "b", 13, 4666),
            Fault(1570, "silent", "a", 16, 3771),
            Fault(1917, "silent all", "a", 21, 3291),
        ],
    ),
    Regression(
        "the simulator: a process that was killed before it began was never started again",
        replace(
            _MOSTLY,
            seed=10768,
            bucket_ms=100,
            max_delay_ms=2500,
            buckets=15,
            rows_max=1,
            idle_ms=1500,
            stages=(
                StageOptions(
                    name="s0",
                    reads=("a",),
                    operator="map",
                    replicas=2,
                    is_batch_safe=True,
                    policy="suspend",
                ),
            ),
            heal_ms=3000,
            trim_every_ms=300,
        ),
        [
            Fault(5, "disk", "processing/s0.0", 21, 6000),
        ],
    ),
    Regression(
        "the order of records in a transaction of the upsert view hung on the order of a set",
        replace(
            _MOSTLY,
            seed=4005,
            sources=("a", "b"),
            source_partitions=2,
            partitions=1,
            buckets=12,
            late="reassign",
            idle_ms=1500,
            stages=(
                StageOptions(
                    name="s0",
                    reads=("a", "b"),
                    operator="sum",
                    replicas=1,
                    is_batch_safe=False,
                    policy="delay",
                ),
                StageOptions(
                    name="s1",
                    reads=("s0",),
                    operator="later",
                    replicas=1,
                    is_batch_safe=True,
                    policy="process",
                ),
            ),
            is_upsert=True,
            latency_max_ms=5,
            heal_ms=6600,
            snapshot_every=10,
            seen_wait_ms=100,
        ),
        [
            Fault(1607, "silent", "b", 9, 3003),
            Fault(3627, "silent all", "b", 19, 5321),
        ],
    ),
    Regression(
        "a branch of a failure that was over was shown, and began another one",
        replace(
            _MOSTLY,
            seed=510198,
            source_partitions=2,
            partitions=1,
            output_partitions=1,
            bucket_ms=100,
            max_delay_ms=2500,
            buckets=16,
            rows_max=1,
            out_of_orderness_ms=50,
            late="reassign",
            idle_ms=1500,
            stages=(
                StageOptions(
                    name="s0",
                    reads=("a",),
                    operator="map",
                    replicas=3,
                    is_batch_safe=True,
                    policy="process",
                ),
            ),
            has_manager=False,
            heal_ms=4600,
            trim_every_ms=300,
            seen_wait_ms=100,
        ),
        [
            Fault(1420, "silent all", "a", 6, 4135),
        ],
    ),
    Regression(
        "a replica that had no room for an input said that it was stable, with results overdue of"
        " which it had not read",
        replace(
            _MOSTLY,
            seed=2010319,
            sources=("a", "b"),
            source_partitions=2,
            output_partitions=1,
            bucket_ms=250,
            buckets=26,
            rows_max=2,
            stages=(
                StageOptions(
                    name="s0",
                    reads=("a", "b"),
                    operator="later",
                    replicas=2,
                    is_batch_safe=False,
                    policy="delay",
                ),
            ),
            latency_max_ms=2,
            heal_ms=8000,
            trim_every_ms=300,
            snapshot_every=60,
            seen_wait_ms=100,
            scenario="flapping",
            input_parts_max=9,
        ),
        [
            Fault(494, "silent", "a", 1, 1818),
            Fault(4812, "silent", "a", 1, 1574),
        ],
    ),
    Regression(
        "a standby that had been killed as primary said that its checkpoint is durable, and nothing"
        " had synced it: its input was trimmed",
        replace(
            _MOSTLY,
            seed=60821,
            source_partitions=2,
            partitions=1,
            output_partitions=3,
            bucket_ms=250,
            buckets=22,
            rows_max=1,
            out_of_orderness_ms=50,
            stages=(
                StageOptions(
                    name="s0",
                    reads=("a",),
                    operator="later",
                    replicas=2,
                    is_batch_safe=False,
                    policy="process",
                    ha="passive",
                ),
            ),
            is_live=False,
            heal_ms=7000,
            trim_every_ms=300,
            seen_wait_ms=10000,
            scenario="passive",
            output_bytes_max=73,
        ),
        [Fault(3246, "away", "processing/s0.0", 6, 2883)],
    ),
    Regression(
        "the checker: the bound did not wait for a source to find a new partition, the only one that"
        " spoke then",
        replace(
            _MOSTLY,
            seed=88000101,
            source_partitions=2,
            output_partitions=3,
            bucket_ms=250,
            buckets=24,
            out_of_orderness_ms=150,
            idle_ms=600,
            stages=(
                StageOptions(
                    name="s0",
                    reads=("a",),
                    operator="both",
                    replicas=2,
                    is_batch_safe=True,
                    policy="process",
                ),
            ),
            has_manager=False,
            heal_ms=7500,
            trim_every_ms=300,
            snapshot_every=10,
            seen_wait_ms=100,
            grown_ms=2161,
            backlog_records=1,
        ),
        [Fault(1486, "silent", "a", 18, 4912)],
    ),
    Regression(
        "the broker was away for longer than a standby waits, and it fenced a primary that lived",
        replace(
            _MOSTLY,
            seed=7,
            stages=(
                StageOptions(
                    name="s0",
                    reads=("a",),
                    operator="later",
                    replicas=2,
                    is_batch_safe=False,
                    policy="process",
                    ha="passive",
                ),
            ),
            buckets=24,
            heal_ms=14_000,
            scenario="passive",
        ),
        [Fault(3_000, "broker away", "everything", 0, 8_000)],
    ),
)
