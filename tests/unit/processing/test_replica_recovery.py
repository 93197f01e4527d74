"""A replica whose disk is lost or damaged, with files in Spark's format on a real disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.adapters.disk.spark_offsets import LoggedBatch
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.plan_offsets import position_fields
from anabranch.pipeline.topic_names import TopicNames
from anabranch.processing.replica_environment import HostProcess, Recovery
from anabranch.protocol.errors import ConfigurationError, StageFunctionError
from anabranch.protocol.log.records import BoundaryRecord, Part
from anabranch.protocol.stage.recovery import HaMode, PartnerWrong
from harness import spark_files
from harness.file_replica import (
    INPUT,
    Conditions,
    FileReplica,
    Source,
    create_topics,
    replica_rows,
    stage_log_state,
)
from harness.replica_world import AHEAD, stable_rows

NAMES = TopicNames("p")


class Crash(BaseException):
    """The process is gone."""


class Stage:
    """A stage of two replicas."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.log = LocalEventLog(VirtualClock())
        create_topics(self.log, NAMES)
        self.source = Source(self.log, NAMES, self.clock, SeededEntropy(1))
        self._started = 10
        self.waited: list[str] = []
        self.reported: list[PartnerWrong] = []
        self.while_waiting: Callable[[], None] = self._nobody_helps
        self.fenced: dict[str, int] = {}

    def _nobody_helps(self) -> None:
        raise Crash

    def start(
        self,
        replica: str,
        point: Callable[[str], None] = lambda _: None,
        *,
        disk: str = "",
        horizon_buckets: int = 0,
        ha: HaMode = "active",
        is_partners: Callable[[str], bool] = lambda _node: False,
    ) -> FileReplica:
        """``disk``: of a process of a passive replica, each of which has one of its own."""
        self._started += 1
        made = FileReplica(
            self.log,
            NAMES,
            replica,
            self.folder / disk,
            self.clock,
            SeededEntropy(self._started),
            Conditions(
                point,
                self._wait,
                horizon_buckets,
                ha,
                is_partners,
                lambda: self.fenced,
                self.reported.append,
            ),
        )
        made.start()
        return made

    def _wait(self, missing: str) -> None:
        self.waited.append(missing)
        self.while_waiting()

    def root(self, replica: str) -> Path:
        return self.folder / f"s.{replica}"

    def lose_disk(self, replica: str) -> None:
        shutil.rmtree(self.root(replica))

    def bounded(self, replica: str) -> None:
        assert len(list((self.root(replica) / "checkpoints").iterdir())) <= 3
        assert len(list((self.root(replica) / "timelines").iterdir())) <= 3

    def check(self, upto: int) -> None:
        log_state = stage_log_state(self.log, NAMES)
        assert log_state.upto == upto
        assert stable_rows(log_state) == self.source.expected(upto)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def last_base(stage: Stage, replica: str) -> int | None:
    """Return the bucket of the replica's last base record."""
    from anabranch.codec import boundary_records
    from anabranch.ports import TopicPartition

    reader = stage.log.reader()
    reader.assign({TopicPartition(NAMES.boundaries("s"), 0): 0})
    entries = [
        boundary_records.decode(v, h)
        for c in reader.fetch(10_000, 0)
        for v, h in zip(c.values, c.headers, strict=True)
    ]
    bases = [
        e.base
        for e in entries
        if isinstance(e, BoundaryRecord) and e.replica == replica and e.base is not None
    ]
    return bases[-1] if bases else None


def with_history(stage: Stage) -> FileReplica:
    """Replica 0 has run buckets up to 20, some of it with parts pending."""
    zero = stage.start("0")
    for upto in range(2, 21, 2):
        stage.source.close(upto, *([upto - 1, upto] if upto % 8 else []))
        zero.settle()
    return zero


@pytest.mark.parametrize("takes_over", [False, True])
def test_a_process_that_takes_over_runs_all_that_is_complete_in_its_first_batch(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, takes_over: bool
) -> None:
    """TI10: otherwise it runs the plan that the one before it has logged (rule 9)."""
    zero = with_history(stage)
    stage.source.close(21, 21)
    zero.runner.tick()
    before = position_fields(LoggedBatch(zero.checkpoint, zero.batch).offsets[0])
    planned = zero.runner.advance(zero.checkpoint.name, INPUT, before)
    assert planned is not None
    spark_files.log_batch(zero.checkpoint, zero.batch + 1, [planned])
    stage.source.close(23, 22, 23)
    monkeypatch.setattr(Recovery, "takes_over", takes_over)
    again = stage.start("0")
    again.step()
    assert stage_log_state(stage.log, NAMES).closed("0") == (23 if takes_over else 21)
    again.settle()
    stage.check(23)


def test_older_checkpoints_are_removed_while_the_new_one_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    zero = with_history(stage)
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(HostProcess, "beside", lambda _self, _name, work: waiting.append(work))
    again = stage.start("0")
    stage.source.close(21, 21)
    again.settle()
    assert zero.checkpoint.exists()
    waiting.pop()()
    assert not zero.checkpoint.exists()
    stage.check(21)
    stage.start("0")
    stage.lose_disk("0")
    waiting.pop()()  # it removes nothing, and says nothing


def test_a_replica_without_a_disk_starts_from_its_peers(stage: Stage) -> None:
    zero = with_history(stage)
    stage.source.trim(10)
    one = stage.start("1")
    base = last_base(stage, "1")
    assert base is not None
    assert 10 <= base <= 20
    stage.source.close(26, 21, 22, 25)
    for replica in (one, zero):
        replica.settle()
    stage.check(26)
    log_state = stage_log_state(stage.log, NAMES)
    assert log_state.closed("1") == 26
    assert replica_rows(log_state, "1", base + 1) == {
        b: n for b, n in stage.source.expected(26).items() if b > base
    }, "all of it, from there on"
    assert stage.waited == []


@pytest.mark.parametrize("from_peer", [True, False])
def test_a_replica_that_was_outvoted_comes_back_right(stage: Stage, from_peer: bool) -> None:
    """TI8: its state is wrong, so its next process, which is killed while it starts, and the
    one after that do without it.
    """
    with_history(stage)
    one = stage.start("1")
    one.settle()
    path = one.checkpoint / "commits" / str(one.batch)
    version, fields = path.read_text().splitlines()
    spark_files.write(
        path, f"{version}\n{json.dumps(json.loads(fields) | {'rows': {'23': 7}})}".encode()
    )
    stage.fenced = {"1": one.boundary.epoch}
    if not from_peer:
        stage.lose_disk("0")

    def crash(name: str) -> None:
        if name == ("processing.peer_copied" if from_peer else "processing.timeline_written"):
            raise Crash

    with pytest.raises(Crash):
        stage.start("1", crash)
    again = stage.start("1")
    stage.source.close(26, 21, 22, 25)
    again.settle()
    log_state = stage_log_state(stage.log, NAMES)
    assert log_state.closed("1") == 26
    assert {b: n for b, n in replica_rows(log_state, "1", 21).items() if b > 20} == {
        b: n for b, n in stage.source.expected(26).items() if b > 20
    }


def test_it_takes_no_batch_that_has_begun_what_is_not_stable(stage: Stage) -> None:
    zero = with_history(stage)
    assert stage_log_state(stage.log, NAMES).pending("0")
    one = stage.start("1")
    base = last_base(stage, "1")
    assert base is not None
    assert base <= 20
    assert one.batch < zero.batch
    one.settle()
    stage.check(20)


def test_after_the_disk_is_lost_it_goes_on_behind_its_own_boundary(stage: Stage) -> None:
    with_history(stage)
    one = stage.start("1")
    stage.source.close(24, 23)
    one.settle()
    stage.lose_disk("1")
    again = stage.start("1")
    assert last_base(stage, "1") is not None
    stage.source.close(30, 27, 28)
    again.settle()
    stage.check(30)
    log_state = stage_log_state(stage.log, NAMES)
    assert replica_rows(log_state, "1", 25) == {
        b: n for b, n in stage.source.expected(30).items() if b > 24
    }


def test_a_replica_that_was_away_for_too_long_leaves_its_own_checkpoint(stage: Stage) -> None:
    zero, one = with_history(stage), stage.start("1")
    one.settle()
    one.close()
    for upto in range(22, 41, 2):
        stage.source.close(upto, upto)
        zero.settle()
    stage.source.trim(34)
    again = stage.start("1")
    base = last_base(stage, "1")
    assert base is not None
    assert base >= 34
    stage.source.close(44, 43)
    again.settle()
    zero.settle()
    stage.check(44)
    log_state = stage_log_state(stage.log, NAMES)
    assert replica_rows(log_state, "1", base + 1) == {
        b: n for b, n in stage.source.expected(44).items() if b > base
    }


def test_where_nothing_of_a_peer_will_do_it_begins_with_nothing(stage: Stage) -> None:
    """Each batch that it still has has begun what is not stable: what was copied of it is not
    gone on from.
    """
    zero = stage.start("0")
    for upto in range(2, 21, 2):
        stage.source.close(upto, upto - 1, upto)
        zero.settle()
    zero.close()
    for batch in range(zero.batch - 1):
        for folder in ("commits", "offsets"):
            (zero.checkpoint / folder / str(batch)).unlink()
    one = stage.start("1")
    assert (one.batch, last_base(stage, "1")) == (-1, None)
    stage.source.close(26, 21, 22, 25)
    one.settle()
    stage.check(26)


@pytest.mark.parametrize("folder", ["commits", "offsets"])
def test_where_nothing_of_its_own_is_whole_and_nobody_else_is_there_it_begins_with_nothing(
    stage: Stage, folder: str
) -> None:
    zero = with_history(stage)
    zero.close()
    for path in (zero.checkpoint / folder).iterdir():
        path.write_bytes(b"")
    again = stage.start("0")
    assert again.batch == -1
    stage.source.close(26, 21, 22, 25)
    again.settle()
    stage.check(26)


def test_where_the_beginning_is_deleted_it_waits_for_a_peer(stage: Stage) -> None:
    with_history(stage).close()
    stage.source.trim(10)
    stage.root("0").rename(stage.folder / "away")

    def back() -> None:
        (stage.folder / "away").rename(stage.root("0"))

    stage.while_waiting = back
    one = stage.start("1")
    assert stage.waited == ["a from bucket 1 on"]
    stage.source.close(24, 23)
    one.settle()
    stage.check(24)


def test_a_stage_that_is_new_begins_after_what_is_deleted(stage: Stage) -> None:
    """It says in the log what it leaves out."""
    stage.source.close(10, *range(1, 11))
    stage.source.trim(6)
    zero = stage.start("0")
    assert (zero.runner.given_up, stage.waited) == (6, [])
    assert zero.step()
    one = stage.start("1")
    assert (one.runner.given_up, last_base(stage, "1")) == (0, 6), (
        "there is a checkpoint to copy by now"
    )
    again = stage.start("0")
    assert again.runner.given_up == 0, "its checkpoint holds where it stands"
    log_state = stage_log_state(stage.log, NAMES)
    record = log_state.last("0")
    assert record is not None
    assert (log_state.upto, record.closed, record.missing, record.parts) == (6, 6, ("a",), ())


def test_what_a_new_stage_makes_then_is_whole_from_there_on(stage: Stage) -> None:
    stage.source.close(10, *range(1, 11))
    stage.source.trim(6)
    replicas = [stage.start("0"), stage.start("1")]
    assert [replica.runner.given_up for replica in replicas] == [6, 6]
    stage.source.close(20, 12, 15)
    for replica in replicas:
        replica.settle()
    log_state = stage_log_state(stage.log, NAMES)
    source = Source.__new__(Source)
    source.rows = {bucket: rows for bucket, rows in stage.source.rows.items() if bucket > 6}
    assert stable_rows(log_state) == source.expected(20)
    assert replica_rows(log_state, "1", 1) == source.expected(20)
    stage.lose_disk("0")
    stage.lose_disk("1")
    again = stage.start("0")
    assert (again.runner.given_up, stage.waited) == (6, []), "that is where the stage begins"
    stage.source.close(26, 22)
    again.settle()
    source.rows[22] = stage.source.rows[22]
    assert stable_rows(stage_log_state(stage.log, NAMES)) == source.expected(26)
    again.close()
    stage.lose_disk("0")
    stage.source.trim(9)
    with pytest.raises(Crash):
        stage.start("0")
    assert stage.waited == ["a from bucket 7 on"], "it has something to lose now"


def whole(stage: Stage) -> dict[int, int]:
    """Return the rows of a stage that began late, after bucket 6."""
    source = Source.__new__(Source)
    source.rows = {bucket: rows for bucket, rows in stage.source.rows.items() if bucket > 6}
    return {bucket: rows for bucket, rows in source.expected(16).items() if bucket > 6 + AHEAD}


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("replica", ["0", "1"])
def test_what_a_new_stage_gives_up_stays_given_up_after_a_restart(
    stage: Stage, replica: str, steps: int
) -> None:
    """The process itself restarts, or a peer that copies its checkpoint meanwhile."""
    stage.source.close(16, *range(1, 17))
    stage.source.trim(6)
    first = stage.start("0", horizon_buckets=AHEAD)
    for _ in range(steps):
        assert first.step()
    stage.start(replica, horizon_buckets=AHEAD).settle()
    assert stable_rows(stage_log_state(stage.log, NAMES)) == whole(stage)


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("keeps_disk", [True, False])
@pytest.mark.parametrize("ha", ["active", "upstream_backup"])
def test_a_new_stage_that_loses_its_disk_begins_where_it_began(
    stage: Stage, ha: HaMode, keeps_disk: bool, steps: int
) -> None:
    """However little it has made; nothing from before that is waited for."""
    stage.source.close(16, *range(1, 17))
    stage.source.trim(6)
    first = stage.start("0", disk="d", horizon_buckets=AHEAD, ha=ha)
    for _ in range(steps):
        assert first.step()
    first.close()
    if not keeps_disk:
        shutil.rmtree(stage.folder / "d")
    stage.start("0", disk="d", horizon_buckets=AHEAD, ha=ha).settle()
    assert stage.waited == []
    assert stable_rows(stage_log_state(stage.log, NAMES)) == whole(stage)


def dies_once_its_plan_is_logged(first: FileReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    """End a process that has logged the plan of its next batch and run nothing of it."""

    def crash(*_: object) -> None:
        raise Crash

    monkeypatch.setattr(first.runner, "begin", crash)
    with pytest.raises(Crash):
        first.step()
    first.close()


@pytest.mark.parametrize("gone", [0, 3])
@pytest.mark.parametrize("ha", ["active", "upstream_backup", "amnesia"])
def test_la2_a_first_plan_whose_blocks_were_deleted_is_not_run_again(
    stage: Stage, ha: HaMode, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would find that out by reading, and so would each process after it."""
    stage.source.close(16, *range(1, 17))
    stage.source.trim(gone)
    first = stage.start("0", disk="d", horizon_buckets=AHEAD, ha=ha)
    dies_once_its_plan_is_logged(first, monkeypatch)
    stage.source.trim(6)
    again = stage.start("0", disk="d", horizon_buckets=AHEAD, ha=ha)
    assert not (again.checkpoint / "offsets" / "0").exists()
    assert again.runner.given_up == 6 + AHEAD
    again.settle()
    assert stage.waited == []
    assert stable_rows(stage_log_state(stage.log, NAMES)) == whole(stage)


def test_la2_nor_where_a_peer_has_begun_behind_them_and_has_results(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.source.close(16, *range(1, 17))
    dies_once_its_plan_is_logged(stage.start("1", disk="b", horizon_buckets=AHEAD), monkeypatch)
    stage.source.trim(6)
    stage.start("0", disk="a", horizon_buckets=AHEAD).settle()
    again = stage.start("1", disk="b", horizon_buckets=AHEAD)
    assert not (again.checkpoint / "offsets" / "0").exists()
    assert again.runner.given_up == 6 + AHEAD
    again.settle()
    assert stable_rows(stage_log_state(stage.log, NAMES)) == whole(stage)


@pytest.mark.parametrize("ha", ["active", "upstream_backup", "amnesia"])
def test_a_first_plan_with_a_result_is_not_run_again_without_its_blocks(
    stage: Stage, ha: HaMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died between its first result and its first commit, and its blocks were deleted
    while the stage was away. It has something to lose: the next process waits for them.
    """
    stage.source.close(16, *range(1, 17))
    first = stage.start("0", disk="d", horizon_buckets=AHEAD, ha=ha)
    finish = first.runner.finish

    def crash(name: str, batch: int, parts: tuple[Part, ...]) -> bool:
        finish(name, batch, parts)
        raise Crash

    monkeypatch.setattr(first.runner, "finish", crash)
    with pytest.raises(Crash):
        first.step()
    first.close()
    assert stage_log_state(stage.log, NAMES).origin("0").has_results
    stage.source.trim(6)
    with pytest.raises(Crash):
        stage.start("0", disk="d", horizon_buckets=AHEAD, ha=ha)
    assert stage.waited == ["a from bucket 1 on"]


def test_a_newer_process_ends_the_waiting(stage: Stage) -> None:
    with_history(stage).close()
    stage.source.trim(10)
    stage.root("0").rename(stage.folder / "away")
    stage.while_waiting = lambda: None

    def newer() -> None:
        stage.while_waiting = stage._nobody_helps
        with pytest.raises(Crash):
            stage.start("1")
        stage.while_waiting = lambda: None

    stage.while_waiting = newer
    from anabranch.protocol.errors import Fenced

    with pytest.raises(Fenced):
        stage.start("1")


class Points:
    """Crashes at the ``at``-th point, and once more ``again`` points later."""

    def __init__(self, at: int, again: int) -> None:
        self._left = [at, again] if again else [at]
        self.crashed = False

    def __call__(self, _name: str) -> None:
        if self._left:
            self._left[0] -= 1
            if not self._left[0]:
                del self._left[0]
                self.crashed = True
                raise Crash


@pytest.mark.parametrize("again", [0, 1, 2])
def test_a_crash_at_any_point_of_a_failover_from_a_peer(tmp_path: Path, again: int) -> None:
    """The crash may hit the copy, too; the second one hits the next failover."""
    at, crashed = 0, True
    while crashed:
        at += 1
        stage, point = Stage(tmp_path / str(at)), Points(at, again)
        zero = with_history(stage)
        stage.source.trim(8)
        for number in range(3):
            try:
                one = stage.start("1", point)
                if number == 0:
                    stage.source.close(26, 21, 22, 25)
                one.settle()
            except Crash:
                if number == 0:
                    stage.source.close(26, 21, 22, 25)
            else:
                break
        zero.settle()
        stage.check(26)
        log_state, base = stage_log_state(stage.log, NAMES), last_base(stage, "1")
        assert base is not None
        assert log_state.closed("1") == 26
        assert replica_rows(log_state, "1", base + 1) == {
            b: n for b, n in stage.source.expected(26).items() if b > base
        }
        stage.bounded("1")
        crashed = point.crashed
    assert at > 6


def damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 0 if how == "empty" else 9])


@pytest.mark.parametrize("how", ["missing", "empty", "cut"])
@pytest.mark.parametrize("folder", ["offsets", "commits"])
@pytest.mark.parametrize("back", [0, 1, 3])
def test_damage_is_gone_back_over(stage: Stage, folder: str, how: str, back: int) -> None:
    """The newest ``back + 1`` files; the records of the batches that are run again take the
    place of theirs.
    """
    zero = with_history(stage)
    zero.close()
    for batch in range(zero.batch - back, zero.batch + 1):
        damage(zero.checkpoint / folder / str(batch), how)
    again = stage.start("0")
    assert again.batch == zero.batch - back - 1
    stage.source.close(26, 21, 22, 25)
    again.settle()
    stage.check(26)
    assert last_base(stage, "0") is None


def test_where_all_is_damaged_the_peers_is_taken(stage: Stage) -> None:
    with_history(stage).close()
    one = stage.start("1")
    stage.source.close(22, 21)
    one.settle()
    one.close()
    for path in (one.checkpoint / "commits").iterdir():
        path.write_bytes(b"")
    again = stage.start("1")
    again.settle()
    stage.check(22)
    assert stage_log_state(stage.log, NAMES).closed("1") == 22


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"name": 1}'])
def test_a_damaged_timeline_file_is_as_good_as_none(stage: Stage, content: bytes | None) -> None:
    with_history(stage).close()
    one = stage.start("1")
    one.close()
    (path,) = (stage.root("1") / "timelines").glob("*.json")
    if content is None:
        shutil.rmtree(one.checkpoint)
    else:
        path.write_bytes(content)
    again = stage.start("1")
    again.settle()
    stage.check(20)
    stage.bounded("1")


def test_a_checkpoint_of_an_earlier_version_is_rejected(stage: Stage) -> None:
    """It said up to where the output was closed, beside what had been read."""
    zero = with_history(stage)
    zero.close()
    for path in (zero.checkpoint / "offsets").glob("[0-9]*"):
        version, metadata, *offsets = path.read_text().splitlines()
        old = [
            json.dumps(fields | {"closed": fields["bucket"]}) for fields in map(json.loads, offsets)
        ]
        spark_files.write(path, "\n".join([version, metadata, *old]).encode())
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="earlier version of anabranch"):
            stage.start("0")
    stage.check(20)


def test_many_restarts_need_no_more_room(stage: Stage) -> None:
    zero = with_history(stage)
    for upto in range(22, 60):
        zero.close()
        zero = stage.start("0")
        stage.source.close(upto, upto)
        zero.settle()
        stage.bounded("0")
    stage.check(59)


def failed_over(stage: Stage) -> FileReplica:
    """Fail a passive replica over: one process was at 20 when it was killed, another replaced it
    with a copy of what the first had at 12, closed 24, and has lost its disk; the first begins
    again.
    """
    zero = stage.start("0", disk="zero")
    for upto in range(2, 21, 2):
        stage.source.close(upto, *([upto - 1, upto] if upto % 8 else []))
        zero.settle()
        if upto == 12:
            shutil.copytree(stage.folder / "zero", stage.folder / "one")
    zero.close()
    one = stage.start("0", disk="one")
    assert one.batch < zero.batch
    stage.source.close(24, 22, 23)
    one.settle()
    one.close()
    shutil.rmtree(stage.folder / "one")
    return zero


def test_ti7_where_the_blocks_after_that_are_gone_it_goes_on_under_a_base_record(
    stage: Stage,
) -> None:
    zero = failed_over(stage)
    stage.source.trim(18)
    again = stage.start("0", disk="zero")
    assert 0 <= again.batch <= zero.batch
    base = last_base(stage, "0")
    assert base is not None
    assert base <= 24
    again.close()
    again = stage.start("0", disk="zero")
    assert last_base(stage, "0") == base, "until a batch was committed it is said again"
    stage.source.close(30, 27, 28)
    again.settle()
    again.close()
    again = stage.start("0", disk="zero")
    stage.source.close(36, 31, 36)
    again.settle()
    stage.check(36)


def test_ti11_a_process_killed_once_its_file_is_written_claims_no_more_than_that_has(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    zero = failed_over(stage)
    claims = [zero.disk.bucket(zero.checkpoint.name, zero.batch)]
    monkeypatch.setattr(Recovery, "claimed", property(lambda _: claims[-1]))

    def lower(_: Recovery, bucket: int) -> bool:
        claims.append(bucket)
        return True

    def killed(point: str) -> None:
        if point == "processing.timeline_written":
            raise Crash

    monkeypatch.setattr(Recovery, "lower_claim", lower)
    with pytest.raises(Crash):
        stage.start("0", killed, disk="zero")
    newest = zero.disk.newest()
    assert newest is not None
    assert newest.start_batch < zero.batch, "its last records were cut off"
    assert claims[1:] == [zero.disk.bucket(newest.name, newest.start_batch)]


def backed_up(stage: Stage, horizon_buckets: int = AHEAD) -> FileReplica:
    """Start a process of a stage with ``upstream_backup``."""
    return stage.start("0", disk="d", horizon_buckets=horizon_buckets, ha="upstream_backup")


def last_of_all(stage: Stage, horizon_buckets: int) -> None:
    """Let a stage with ``upstream_backup`` close 20 and lose its disk, and add more input."""
    for upto in range(2, 21, 2):
        stage.source.close(upto, upto - 1, upto)
    first = backed_up(stage, horizon_buckets)
    first.settle()
    first.close()
    shutil.rmtree(stage.folder / "d")
    stage.source.close(26, 21, 22, 25)


def test_cm1_a_state_horizon_that_is_too_short_stops_one_process_after_the_other(
    stage: Stage,
) -> None:
    """Its closed results are right, and nothing is added to them."""
    last_of_all(stage, 1)
    for _ in range(4):
        again = backed_up(stage, 1)
        with pytest.raises(StageFunctionError, match="give the stage a longer state_horizon"):
            again.settle()
        again.close()
    stage.check(20)


def test_cm1_what_a_partner_made_stands_and_the_stage_goes_on(stage: Stage) -> None:
    """Made anew from too little input, so that it differs: on a node that is a partner's that is
    told, and what is new is closed.
    """
    last_of_all(stage, 1)
    again = stage.start(
        "0", disk="d", horizon_buckets=1, ha="upstream_backup", is_partners=lambda _node: True
    )
    again.settle()
    again.close()
    assert [(found.stage, found.bucket) for found in stage.reported] != []
    assert {found.stage for found in stage.reported} == {"s"}
    assert all(found.bucket <= 20 for found in stage.reported)


@pytest.mark.parametrize("batches", range(1, 4))
def test_cm1_processes_that_are_killed_while_they_compare_begin_anew(
    stage: Stage, batches: int
) -> None:
    last_of_all(stage, AHEAD)
    for _ in range(3):
        again = backed_up(stage)
        assert again.batch == -1
        for _ in range(batches):
            assert again.step()
        again.close()
    again = backed_up(stage)
    again.settle()
    stage.check(26)
    again.close()
    batch = again.batch
    again = backed_up(stage)
    assert again.batch == batch, "all was compared: its own checkpoint will do"
