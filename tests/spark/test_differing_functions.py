"""Replicas of one stage whose functions differ, with real Spark and a real broker: by a mistake,
which is told, and since there is a new version.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.client.rows import corrected
from anabranch.codec import control_records
from anabranch.codec.catalog import TopicSettings
from anabranch.operating.restate import Restating
from anabranch.pipeline.model import Pipeline
from anabranch.process.frame import ExitCode
from anabranch.protocol.control.records import Alarm
from anabranch.protocol.log.boundary_log import contents
from harness.service_processes import service
from harness.sources import everything
from harness.stage_processes import StageProcess
from harness.stages import WIDTH_MS, Feed, Output, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

WINDOW: Final = 3
"""Buckets. A window that ends in bucket 3 n ends with it."""
FIRST: Final = 10
FACTOR: Final = "TEST_FACTOR"
FUNCTIONS: Final = """
import os

from pyspark.sql import functions as F


def totals(a):
    factor = F.lit({factor})
    windows = a.groupBy(F.window("event_time", "300 milliseconds"), "key").agg(
        {total}.alias("total")
    )
    return windows.select(
        "key",
        "total",
        F.unix_millis("window.end").alias("until"),
        F.col("window.end").alias("event_time"),
    )
"""
FED: Final = 'F.sum(F.col("value") * factor)'
"""Function whose factor changes what is in the state."""
BEHIND: Final = '(F.sum("value") * factor)'
"""Function whose factor is applied behind the state."""
RIGHT: Final = FUNCTIONS.format(factor=1, total=FED)
WRONG: Final = FUNCTIONS.format(factor=10, total=FED)
BY_ENVIRONMENT: Final = FUNCTIONS.format(
    factor=1,
    total="F.sum(F.udf(lambda value: value * int(os.environ.get("
    f'"{FACTOR}", "1")), "long", useArrow=False)("value"))',
)
"""Not deterministic: the same code and plan, and another state on another machine."""

WITH_COUNT: Final = RIGHT.replace(
    '.alias("total")', '.alias("total"), F.count("*").alias("count")'
).replace('"total",\n', '"total", "count",\n')

Total = tuple[int, int, int]
"""(bucket that the window ends with, key, total)."""


def rows_of(bucket: int) -> list[tuple[int, int, int]]:
    return [(bucket * WIDTH_MS - late, late % 2, bucket + late) for late in range(0, 90, 10)]


def expected(last: int, factor_of: Callable[[int, int], int] = lambda *_: 1) -> Counter[Total]:
    """Return the results of the windows that end up to bucket ``last``. ``factor_of``: the factor
    for the bucket at a window's end and the bucket of a row.
    """
    totals: Counter[tuple[int, int]] = Counter()
    for bucket in range(FIRST, last + 1):
        for event_time, key, value in rows_of(bucket):
            # a window begins with a row at its very begin, which lies in the bucket before
            end = event_time // (WINDOW * WIDTH_MS) * WINDOW + WINDOW
            totals[end, key] += value * factor_of(end, bucket)
    return Counter((end, key, total) for (end, key), total in totals.items() if end <= last)


class World:
    """A stage of some replicas, fed bucket by bucket, with its manager and its delivery."""

    def __init__(self, kafka: str, name: str, folder: Path, replicas: int) -> None:
        self.kafka, self.name = kafka, name
        self.folder, self.replicas = folder, replicas
        self.log = KafkaEventLog(kafka)
        self.pipeline = self.change(RIGHT)
        self.given = FIRST - 1
        self._open = ExitStack()

    def __enter__(self) -> Self:
        create_topics(self.kafka, self.pipeline)
        admin = self.log.admin()
        assert not admin.create([TopicSettings(f"{self.name}.out", 1)])
        admin.close()
        self._feed, self.output = (
            Feed(self.kafka, self.pipeline, "a"),
            Output(self.kafka, self.pipeline, "s"),
        )
        self._open.callback(self._feed.close)
        self._open.callback(self.output.close)
        for kind, which in (("consistency_manager", self.name), ("delivery", "out")):
            self._open.enter_context(
                service(kind, which, self.pipeline.path, self.kafka, self.folder / kind)
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def change(self, functions: str, version: int = 1, more: str = "") -> Pipeline:
        """Write pipeline file and function anew, for processes that start from now on. ``more``:
        lines of the stage.
        """
        stages = (
            f"s:\n  reads: [a]\n  participant: north\n  transform: MODULE:totals\n"
            f"  replicas: {self.replicas}\n  version: {version}\n{more}"
        )
        return write_pipeline(self.folder, self.name, functions, stages=stages)

    def start(self, replica: str, environment: Mapping[str, str] | None = None) -> StageProcess:
        """For a ``with``. Each replica has a disk of its own: none copies what another made."""
        disk = self.folder / f"disk.{replica}"
        return StageProcess(self.pipeline, f"s.{replica}", self.kafka, disk, more=environment)

    def give(self, last: int) -> None:
        """Write the buckets up to ``last``."""
        for bucket in range(self.given + 1, last + 1):
            self._feed.append(readings(rows_of(bucket)), bucket)
        self.given = last

    def closed(self, replica: str, process: StageProcess, bucket: int) -> None:
        """Until a replica itself has closed ``bucket``."""

        def reached() -> bool:
            process.check()
            self.output.reader.poll(50)
            return self.output.reader.log_state.closed(replica) >= bucket

        wait_until(reached, 200, f"bucket {bucket} of replica {replica}")

    def contents(self, replica: str, bucket: int) -> tuple[int, int] | None:
        """(rows, digest) of what a replica itself made of a bucket; None: nothing."""
        parts = self.output.reader.log_state.replica_bucket(replica, bucket)
        return None if parts is None else contents(parts)

    def delivered(self, last: int, count: int = 0) -> Counter[Total]:
        """Return the corrected topic once it has everything up to bucket ``last``, or ``count``
        rows.
        """

        def read() -> Counter[Total]:
            with corrected(self.kafka, f"{self.name}.out", follow=False) as rows:
                values = [row.value for row in rows]
            assert len({(each["until"], each["key"]) for each in values}) == len(values), "repeated"
            return Counter(
                (each["until"] // WIDTH_MS, each["key"], each["total"]) for each in values
            )

        count = count or len(expected(last))
        wait_until(lambda: read().total() >= count, 120, f"{count} results")
        return read()

    def alarms(self) -> list[Alarm]:
        """All that were raised."""
        entries = [
            control_records.decode(value)
            for chunk in everything(self.log, self.pipeline.topic_names.alarms())
            for value in chunk.values
        ]
        return [entry for entry in entries if isinstance(entry, Alarm)]

    def alarm(self, kind: str, text: str) -> Alarm:
        """Wait for an alarm of a kind with ``text``, and return the first."""

        def found() -> Alarm | None:
            return next(
                (each for each in self.alarms() if each.kind == kind and text in each.text), None
            )

        alarm = wait_until(found, 60, f"an alarm {kind}: {text}", every_s=0.5)
        assert alarm is not None
        return alarm

    def upgraded(self, old: StageProcess, new: StageProcess) -> int:
        """Until version 2, of which replica 1 is, counts, and ``old`` has ended. The last bucket
        given.
        """

        def counts() -> bool:
            new.check()
            self.give(self.given + 1)
            self.output.reader.poll(50)
            return self.output.reader.log_state.version[0] == 2

        wait_until(counts, 200, "version 2 counts", every_s=0.5)
        self.give(self.given // WINDOW * WINDOW + 2 * WINDOW)
        assert old.wait(60) == ExitCode.FENCED, old.log()
        self.closed("1", new, self.given)
        return self.given

    def check_nothing_wrong_is_silent(self, last: int) -> None:
        """Each bucket of the corrected topic is right, or an alarm names it."""
        wrong = {end for end, _, _ in self.delivered(last) - expected(last)}

        def silent() -> set[int]:
            return wrong - {each.bucket for each in self.alarms() if each.kind == "digest_mismatch"}

        wait_until(lambda: not silent(), 60, f"alarms of {wrong}", every_s=0.5)


@pytest.mark.parametrize(
    ("functions", "environment", "plan"),
    [
        (BY_ENVIRONMENT, {FACTOR: "10"}, "the same plan"),
        (WRONG, {}, "different code of the same version"),
    ],
    ids=["by environment", "by code"],
)
def test_of_two_replicas_that_disagree_an_alarm_names_bucket_and_whose_rows_stand(
    kafka: str,
    topic_prefix: str,
    tmp_path: Path,
    functions: str,
    environment: Mapping[str, str],
    plan: str,
) -> None:
    """Nobody can tell which of two is right: the first one stands, here the wrong one."""
    with World(kafka, topic_prefix, tmp_path, 2) as world:
        world.change(functions)
        world.give(13)
        with world.start("1", environment) as wrong:
            world.closed("1", wrong, 13)
            world.change(BY_ENVIRONMENT if environment else RIGHT)
            with world.start("0") as right:
                world.closed("0", right, 13)
                alarm = world.alarm("digest_mismatch", plan)
                assert alarm.bucket == 12
                assert "replicas 1 and 0 of s " in alarm.text
                assert alarm.text.endswith("those of replica 1 stand")
                world.give(19)
                world.closed("0", right, 19)
                world.closed("1", wrong, 19)
                for bucket in (15, 18):
                    world.alarm("digest_mismatch", f" of bucket {bucket} by {plan}")
        assert world.delivered(19) != expected(19), "the wrong one was first"
        world.check_nothing_wrong_is_silent(19)


def test_of_three_the_outvoted_one_ends_and_its_state_is_not_used(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Its process is dead when it is outvoted, and another one alive. A window is half full."""
    spoilt = {FACTOR: "10"}
    with World(kafka, topic_prefix, tmp_path, 3) as world:
        world.change(BY_ENVIRONMENT)
        world.give(13)
        with world.start("1", spoilt) as wrong:
            world.closed("1", wrong, 13)
        with world.start("0") as zero, world.start("2") as two:
            world.closed("0", zero, 13)
            world.closed("2", two, 13)
            assert world.alarm("replica_fenced", "").bucket == 12
            with world.start("1") as mended:
                world.give(16)
                world.closed("1", mended, 16)
                world.give(19)
                for replica, process in (("0", zero), ("1", mended), ("2", two)):
                    world.closed(replica, process, 19)
            for bucket in (15, 18):
                assert world.contents("0", bucket) == world.contents("2", bucket)
                assert world.contents("1", bucket) in (None, world.contents("0", bucket)), (
                    "it went on from the spoilt state"
                )
            assert not [row for row in world.delivered(19) - expected(19) if row[0] > 12]
            with world.start("1", spoilt) as wrong:

                def outvoted() -> bool:
                    wrong.check()
                    world.give(world.given + 1)
                    return f'"exit_code": {int(ExitCode.FENCED)}' in ended(wrong)

                wait_until(outvoted, 300, "its end", every_s=0.5)
            world.closed("0", zero, world.given)

        def fences() -> list[Alarm]:
            return [alarm for alarm in world.alarms() if alarm.kind == "replica_fenced"]

        wait_until(lambda: len(fences()) >= 2, 60, "the second alarm", every_s=0.5)
        assert all("than replica 1, by the same plan" in alarm.text for alarm in fences())
        world.check_nothing_wrong_is_silent(world.given // WINDOW * WINDOW)


def ended(process: StageProcess) -> str:
    """Return what a node reports of replicas that ended."""
    return "\n".join(
        line for line in process.all_of_its_log().splitlines() if '"replica_ended"' in line
    )


def test_a_new_version_counts_from_the_bucket_that_the_log_names(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """A function that is changed behind its state goes on from it: each window until that bucket is
    the old one's, each after it the new one's, whole.
    """
    with World(kafka, topic_prefix, tmp_path, 2) as world:
        world.change(FUNCTIONS.format(factor=1, total=BEHIND))
        world.give(13)
        with world.start("0") as old:
            with world.start("1") as other:
                world.closed("1", other, 13)
            world.give(14)
            world.closed("0", old, 14)
            world.change(FUNCTIONS.format(factor=10, total=BEHIND), version=2)
            log_state = world.output.reader.log_state
            with world.start("1") as new:
                last = world.upgraded(old, new)
                with world.start("0") as again:
                    world.give(last + 2 * WINDOW)
                    world.closed("0", again, last + 2 * WINDOW)
                    world.closed("1", new, last + 2 * WINDOW)
                last += 2 * WINDOW
        version, cut = log_state.version
        assert version == 2
        assert 14 <= cut < last

        found = world.delivered(last)
        assert found == expected(last, lambda end, _: 10 if end > cut else 1), (
            json.dumps(sorted(found)),
            cut,
        )
        assert world.alarms() == [], "versions are not compared"


def test_a_new_version_may_have_another_column(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Results have it from the bucket on from which the new version counts."""
    with World(kafka, topic_prefix, tmp_path, 2) as world:
        world.give(13)
        with world.start("0") as old:
            world.closed("0", old, 13)
            world.change(WITH_COUNT, version=2)
            log_state = world.output.reader.log_state
            with world.start("1") as new:
                last = world.upgraded(old, new)
        _, cut = log_state.version
        assert world.delivered(last) == expected(last)
        with corrected(kafka, f"{topic_prefix}.out", follow=False) as rows:
            columns = {row.value["until"] // WIDTH_MS: set(row.value) for row in rows}
        before = {"key", "total", "until"}
        assert columns == {
            end: before if end <= cut else before | {"count"} for end, _, _ in expected(last)
        }


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("300 milliseconds", "600 milliseconds"), "600 milliseconds"),
        (("F.sum(", "F.max("), "max("),
        (("value", "key"), "a.key"),
        (("a.groupBy", "a.where('value > 0').groupBy"), "(a.value > 0)"),
    ],
    ids=["window", "aggregate", "argument", "filter"],
)
def test_a_new_version_whose_state_means_something_else_does_not_begin(
    kafka: str, topic_prefix: str, tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    """It says what differs, and has changed nothing: the function before goes on from there."""
    with World(kafka, topic_prefix, tmp_path, 1) as world:
        world.give(13)
        with world.start("0") as old:
            world.closed("0", old, 13)
            world.give(14)  # its batch begins when the one before is committed
            world.closed("0", old, 14)
        epoch = world.output.reader.log_state.epoch("0")
        world.change(RIGHT.replace(*change), version=2)
        with world.start("0") as new:
            wait_until(lambda: "another function" in ended(new), 120, "its end", every_s=0.5)
            assert f'"exit_code": {int(ExitCode.CONFIGURATION)}' in ended(new)
            said = json.loads(ended(new).splitlines()[0])["error"]
        assert "stage s: the state in its checkpoint was computed by another function" in said
        assert told in said
        world.output.reader.read_to_end()
        assert world.output.reader.log_state.epoch("0") == epoch, "it has begun nothing"
        world.change(RIGHT)
        with world.start("0") as old:
            world.give(16)
            world.closed("0", old, 16)
        assert world.delivered(16) == expected(16)


def test_an_operator_lets_a_stage_begin_anew_with_a_function_of_other_state(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Each window up to the bucket that the log names is the old function's, each after it the new
    one's: whole, or left out where the operator was told so.
    """
    with World(kafka, topic_prefix, tmp_path, 1) as world:
        world.give(13)
        with world.start("0") as old:
            world.closed("0", old, 13)
            world.give(14)  # its batch begins when the one before is committed
            world.closed("0", old, 14)
        changed = world.change(WRONG, version=2, more="  state_horizon: 300ms\n")
        decided = Restating(world.log, changed, "s", None, SystemClock()).do()
        assert decided.kept_upto == 14
        with world.start("0") as new:
            world.give(20)
            world.closed("0", new, 20)
            log_state = world.output.reader.log_state
            assert log_state.version == (2, 14)
        whole = expected(20, lambda end, _: 10 if end > 14 else 1)
        right = Counter(
            row for row in whole if not decided.kept_upto < row[0] <= decided.given_up_upto
        )
        assert world.delivered(20, len(right)) == right
        with world.start("0") as new:
            world.give(23)
            world.closed("0", new, 23)
        assert "another function" not in ended(new), "it goes on from its own state"
        assert world.alarms() == []
