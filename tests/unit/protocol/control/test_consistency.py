"""Comparison of replicas, alarms, and results that a stage with ``amnesia`` has given up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from anabranch.protocol.control import consistency
from anabranch.protocol.control.consistency import AlarmBook, GapBook, Mismatch, StreamAudit
from anabranch.protocol.control.records import Alarm, Vote
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    InputPosition,
    LogEntry,
    Part,
)
from harness.stage_logs import StageLog, forgetful, part


@dataclass
class Log:
    """A boundary log with its log state and its audit."""

    writers: tuple[str, ...] = ("0", "1")
    offset: int = -1
    batches: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    tips: dict[str, BatchId | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log_state, self.audit = LogState(self.writers), StreamAudit("s", self.writers)

    def take(self, entry: LogEntry) -> list[Mismatch]:
        self.offset += 1
        outcome = self.log_state.apply(self.offset, entry)
        return self.audit.seen(self.log_state, entry, outcome)

    def begin(self, writer: str, fingerprint: str = "f", version: int = 1) -> None:
        assert self.take(EpochStarted(writer, fingerprint, "t", version=version)) == []
        self.epochs[writer] = self.offset

    def close(
        self, writer: str, upto: int, digests: dict[int, int], **other: object
    ) -> list[Mismatch]:
        """``digests``: of each bucket, 10 rows each, in two parts whose digests add up."""
        self.batches[writer] = self.batches.get(writer, 0) + 1
        ident = BatchId(f"l{writer}", self.batches[writer])
        parts = tuple(
            Part(bucket, p, f"a{self.offset}", 1, 0, 1, 5, (digest - 7 if p else 7) % 2**64)
            for bucket, digest in digests.items()
            for p in (0, 1)
        )
        record = BoundaryRecord(
            writer,
            self.epochs[writer],
            ident,
            self.tips.get(writer),
            upto,
            parts,
            **other,  # type: ignore[arg-type]
        )
        found = self.take(record)
        self.tips[writer] = ident
        return found


@pytest.fixture
def log() -> Log:
    made = Log()
    made.begin("0")
    made.begin("1")
    return made


def test_equal_buckets_are_no_news(log: Log) -> None:
    assert log.close("0", 3, {1: 3, 3: 4}) == []
    assert log.close("1", 2, {1: 3}) == []
    assert log.close("1", 9, {3: 4}) == []
    assert (log.audit.compared, log.audit.uncompared) == (2, 0)
    assert log.audit.floor == 3


def test_the_newest_bucket_made_alike_is_a_sample_for_floats_unless_it_is_large(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.close("0", 3, {1: 3, 3: 4})
    log.close("1", 3, {1: 3, 3: 4})
    agreed = log.audit.agreed
    assert agreed is not None
    assert (agreed.bucket, agreed.first[0], agreed.second[0]) == (3, "0", "1")
    assert [sum(part.rows for part in parts) for _, parts in (agreed.first, agreed.second)] == [
        10,
        10,
    ]
    monkeypatch.setattr(consistency, "FLOAT_ROWS_MAX", 9)
    log.close("0", 5, {5: 6})
    log.close("1", 5, {5: 6})
    assert log.audit.agreed is agreed


def test_digests_are_added_up_modulo_two_to_the_64(log: Log) -> None:
    log.close("0", 1, {1: 3})
    assert log.close("1", 1, {1: 2**64 + 3}) == []


def test_a_different_digest_is_found_once(log: Log) -> None:
    log.close("1", 3, {1: 3, 3: 4})
    (found,) = log.close("0", 3, {1: 3, 3: 5})
    assert found == Mismatch("s", 3, ("1", 10, 4), ("0", 10, 5), "1")
    assert found.text().endswith("10 rows with digest 0000000000000005; those of replica 1 stand")
    assert found.pair == ("s", "0", "1")
    assert "replicas 1 and 0 of s made different rows of bucket 3" in found.text()
    assert log.close("0", 5, {}) == []


def test_nothing_against_something_is_a_difference(log: Log) -> None:
    log.close("0", 5, {2: 3})
    (found,) = log.close("1", 5, {})
    assert found == Mismatch("s", 2, ("0", 10, 3), ("1", 0, 0), "0")
    log.close("1", 9, {})
    (found,) = log.close("0", 9, {8: 1})
    assert found == Mismatch("s", 8, ("1", 0, 0), ("0", 10, 1), "1")


def test_the_replica_is_named_whose_rows_the_stream_has() -> None:
    """It need not be one of the two of three that are compared."""
    log = Log(("0", "1", "2"))
    for writer in "012":
        log.begin(writer)
    log.close("1", 2, {1: 3})
    log.close("0", 2, {1: 4, 2: 5})
    assert [(m.bucket, m.first[0], m.stands) for m in log.close("2", 2, {1: 5, 2: 6})] == [
        (1, "0", "1"),
        (2, "0", ""),
        (1, "1", "1"),
        (2, "1", "1"),
    ]
    assert (
        Mismatch("s", 2, ("0", 1, 1), ("2", 1, 2))
        .text()
        .endswith("; those that were first in the log stand")
    )


def test_where_an_earlier_bucket_is_missing_nobodys_rows_stand_yet() -> None:
    log = Log(("0", "1", "2"))
    for writer in "012":
        log.begin(writer)
    log.close("2", 1, {})
    assert log.close("0", 3, {}, base=3) == []
    assert log.close("1", 3, {}, base=3) == []
    log.close("0", 4, {4: 3})
    (found,) = log.close("1", 4, {4: 9})
    assert (found.first[0], found.stands) == ("0", "")


def test_of_three_the_one_that_two_contradict_is_outvoted() -> None:
    log = Log(("0", "1", "2"))
    for writer in "012":
        log.begin(writer)
    log.close("0", 4, {1: 3, 2: 7, 3: 1})
    assert [(m.bucket, m.outvoted) for m in log.close("1", 4, {1: 3, 2: 8, 3: 1, 4: 9})] == [
        (2, ()),
        (4, ()),
    ]
    assert [(m.bucket, m.outvoted) for m in log.close("2", 3, {1: 3, 2: 8, 3: 2})] == [
        (2, ("0",)),
        (3, ("2",)),
        (3, ("2",)),
    ]
    log.begin("2")
    (found,) = log.close("2", 4, {})
    assert (found.bucket, found.outvoted) == (4, ("1",))
    assert found.votes == (
        Vote("0", 0, 0, 0),
        Vote("1", 1, 10, 9),
        Vote("2", log.epochs["2"], 0, 0),
    )


def test_only_those_that_made_the_bucket_themselves_by_the_same_plan_vote() -> None:
    log = Log(("0", "1", "2"))
    for writer in "012":
        log.begin(writer, "f" if writer != "2" else "another")
    log.close("2", 1, {1: 3})
    log.close("0", 1, {1: 4})
    assert [m.outvoted for m in log.close("1", 1, {1: 3})] == [()]


def test_different_plans_are_not_compared(log: Log) -> None:
    log.close("0", 2, {1: 3})
    log.close("1", 0, {1: 99, 2: 98})  # parts of open buckets
    log.begin("1", "newer", version=2)
    log.close("0", 6, {2: 5, 5: 6, 6: 6})
    assert log.close("1", 5, {5: 1}) == []  # 1 and 2 are of two plans, 5 of another
    assert (log.audit.compared, log.audit.uncompared) == (0, 3)


def test_different_code_of_one_version_is_reported_where_rows_differ_and_outvotes_nobody() -> None:
    log = Log(("0", "1", "2"))
    for writer in "012":
        log.begin(writer, "newer" if writer == "2" else "f")
    for writer in "01":
        log.close(writer, 2, {1: 3, 2: 4})
    found = log.close("2", 2, {1: 3, 2: 5})
    assert found == [
        Mismatch("s", 2, (other, 10, 4), ("2", 10, 5), "0", is_of_one_plan=False) for other in "01"
    ]
    assert "bucket 2 by different code of the same version: 10 rows" in found[0].text()
    log.close("0", 3, {3: 7})
    log.begin("0", "newest")
    assert [m.first[0] for m in log.close("2", 3, {3: 8})] == [], "whoever made it is gone"


def test_after_a_change_at_different_places_replicas_are_not_compared(log: Log) -> None:
    """Their state of the buckets in between comes from different plans, for as long as it lasts."""
    log.close("0", 5, {5: 3})
    log.close("1", 2, {})
    log.begin("1", "newer")
    assert log.close("1", 5, {5: 3}) == []
    log.begin("0", "newer")
    log.close("0", 8, {8: 1})
    assert log.close("1", 8, {8: 2}) == []
    log.begin("0")  # and back
    log.close("0", 9, {9: 1})
    log.begin("1")
    assert log.close("1", 9, {9: 2}) == []
    assert log.audit.compared == 0


@pytest.mark.parametrize("read", [5, 6])
def test_after_a_change_at_the_same_place_they_are_compared_again(log: Log, read: int) -> None:
    """The same place is where the state is the same: what was closed, and what was read."""
    log.close("0", 2, {1: 3}, made_from=(("a", 3),))
    log.close("0", 4, {4: 3, 5: 7}, made_from=(("a", 5),))
    log.close("1", 4, {1: 3, 4: 3, 5: 7}, made_from=(("a", read),))
    assert log.audit.compared == 2
    log.begin("1", "newer")
    log.begin("0", "newer")
    assert log.close("0", 5, {5: 1}, made_from=(("a", 7),)) == []
    log.begin("0", "newer")
    log.close("0", 8, {8: 1}, made_from=(("a", 9),))
    found = log.close("1", 8, {5: 1, 8: 2}, made_from=(("a", 9),))
    assert [m.bucket for m in found] == ([8] if read == 5 else [])
    assert (log.audit.compared, log.audit.uncompared) == ((4, 0) if read == 5 else (2, 2))


def test_a_change_counts_from_the_record_that_is_gone_back_to(log: Log) -> None:
    """A replica whose newest checkpoints are lost goes on from an older one, with another plan."""
    for writer in "01":
        log.close(writer, 2, {2: 3})
        older = log.tips[writer]
        log.close(writer, 4, {4: 3})
        log.begin(writer, "newer")
        log.tips[writer] = older
    log.close("0", 6, {4: 8, 6: 1})
    assert [m.bucket for m in log.close("1", 6, {4: 9, 6: 2})] == [6]


def test_who_begins_anew_has_run_one_plan_only(log: Log) -> None:
    for writer in "01":
        log.close(writer, 2, {2: 3})
        log.begin(writer, "newer")
    log.tips["0"] = None
    log.close("0", 4, {4: 1})
    assert log.close("1", 4, {4: 2}) == []
    log.tips["1"] = None
    log.close("1", 6, {6: 2})
    assert [m.bucket for m in log.close("0", 6, {6: 1})] == [6]


def test_who_began_later_is_not_compared_with_who_began_before(log: Log) -> None:
    log.close("0", 2, {}, missing=("a",))
    log.close("1", 3, {}, missing=("a",))
    log.close("0", 5, {5: 1})
    assert log.close("1", 5, {5: 2}) == []


def test_three_replicas_that_change_one_after_the_other_fence_nobody() -> None:
    log = Log(("0", "1", "2"))
    for writer in "012":
        log.begin(writer)
    for upto, writer in enumerate("012", start=3):
        for each in "012":
            log.close(each, upto - 1, {})
        log.begin(writer, "newer")
    made = [log.close(writer, 9, {9: digest}) for writer, digest in (("0", 1), ("1", 1), ("2", 2))]
    assert made == [[], [], []]


def test_who_copies_a_peer_is_compared_with_it_again() -> None:
    log = Log()
    for writer in "01":
        log.begin(writer)
        log.close(writer, 2 + int(writer), {})
        log.begin(writer, "newer")
        log.close(writer, 5, {})
    log.close("0", 6, {6: 1})
    assert log.close("1", 6, {6: 2}) == []
    log.begin("1", "newer")
    assert log.close("1", 6, {}, base=6) == []
    log.close("0", 8, {8: 1})
    assert [m.bucket for m in log.close("1", 8, {8: 2})] == [8]
    log.begin("1", "newest")
    assert log.close("1", 9, {}, base=9) == []
    log.begin("0", "newest")
    log.close("0", 10, {10: 1})
    assert log.close("1", 10, {10: 2}) == [], "it copied what another plan had made"


def test_who_copies_a_peer_that_has_written_nothing_by_its_new_plan_is_not_compared() -> None:
    """The peer's results after the checkpoint come from its former plan."""
    log = Log(("0", "1", "2"))
    for writer in "012":
        log.begin(writer)
        log.close(writer, 5, {})
    for writer in "02":
        log.close(writer, 8, {7: 1, 8: 1})
    for writer in "012":
        log.begin(writer, "newer", version=2)
    assert log.close("1", 6, {}, base=6) == []
    assert log.close("1", 8, {7: 2, 8: 2}) == [], "nobody is wrong, nobody is outvoted"


def test_who_copies_a_peer_that_went_back_with_another_plan_is_not_compared(log: Log) -> None:
    """The checkpoint is perhaps the other plan's, though the bucket after it is not."""
    log.close("1", 5, {})
    log.close("0", 6, {})
    older = log.tips["0"]
    log.close("0", 8, {8: 1})
    log.begin("0", "newer")
    log.tips["0"] = older
    log.close("0", 9, {})
    assert log.close("1", 7, {}, base=7) == []
    assert log.close("1", 8, {8: 2}) == []


def test_whose_copy_it_is_must_be_known() -> None:
    log = Log(("0", "1", "2", "3"))
    for writer in "012":
        log.begin(writer)
        log.close(writer, 2 + int(writer), {})
    for writer in "01":
        log.begin(writer, "newer")
        log.close(writer, 5, {})
    log.begin("2", "newer")
    log.close("2", 5, {}, base=5)
    log.close("0", 6, {6: 1})
    assert [log.close(writer, 6, {6: 2}) for writer in "12"] == [[], []]


def test_what_a_record_that_is_long_gone_was_made_with_is_not_known(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consistency, "CHAIN_RECORDS_MAX", 2)
    log.close("0", 1, {1: 1})
    oldest = log.tips["0"]
    for bucket in (2, 3):
        log.close("0", bucket, {bucket: 1})
    assert len(log.audit._replicas["0"].points) == 2
    log.tips["0"] = oldest
    log.close("0", 5, {5: 1})
    log.close("0", 6, {6: 1})
    assert [m.bucket for m in log.close("1", 6, {1: 1, 2: 2, 5: 2, 6: 2})] == [2, 3]


def test_the_same_plan_again_changes_nothing(log: Log) -> None:
    log.close("0", 2, {1: 3})
    log.begin("1")
    assert len(log.close("1", 2, {1: 4})) == 1


def test_buckets_that_are_not_its_own_are_not_compared(log: Log) -> None:
    log.close("0", 4, {2: 3, 4: 3})
    assert log.close("1", 3, {}, base=3) == []
    assert len(log.close("1", 4, {4: 9})) == 1
    log.close("1", 9, {9: 1})
    assert len(log.close("0", 9, {9: 2})) == 1


def test_what_a_base_record_names_itself_is_the_replicas_own(log: Log) -> None:
    """It drops what was open before. Its own parts of later buckets are open after it."""
    log.close("0", 5, {3: 3, 4: 4, 5: 5})
    assert log.close("1", 2, {3: 9, 4: 9}) == []
    assert log.close("1", 3, {4: 4, 5: 6}, base=3) == []
    (found,) = log.close("1", 5, {})
    assert found == Mismatch("s", 5, ("0", 10, 5), ("1", 10, 6), "0")
    assert (log.audit.compared, log.audit.uncompared) == (2, 0)


def test_votes_count_what_a_base_record_names() -> None:
    log = Log(("0", "1", "2"))
    for writer in "012":
        log.begin(writer)
    log.close("0", 3, {})
    log.close("1", 3, {2: 2, 3: 3}, base=1)
    assert [m.outvoted for m in log.close("2", 3, {2: 2, 3: 3})] == [("0",), ("0",)]


def test_rejected_records_say_nothing(log: Log) -> None:
    log.close("0", 2, {1: 3})
    old = log.epochs["1"]
    log.begin("1")
    log.epochs["1"] = old
    assert log.close("1", 2, {1: 4}) == []


def test_parts_that_were_cut_off_do_not_count(log: Log) -> None:
    log.close("1", 0, {})
    tip = log.tips["1"]
    log.close("1", 0, {1: 50})
    log.tips["1"] = tip
    log.close("1", 1, {})
    assert [m.second for m in log.close("0", 1, {1: 4})] == [("0", 10, 4)]


def test_one_writer_is_never_compared() -> None:
    log = Log(("0",))
    log.begin("0")
    log.close("0", 5, {1: 3})
    assert (log.audit.compared, log.audit.floor) == (0, 5)


def test_the_end_of_a_shard_closes_no_bucket_of_its_writer(log: Log) -> None:
    """A replica that is behind may be the one that ends the stream."""
    log.close("0", 5, {1: 3, 4: 9})
    log.close("1", 1, {1: 3})
    assert log.close("1", BUCKET_MAX, {}, heirs=2, past=5) == []
    assert log.log_state.heirs == 2
    assert log.audit.compared == 1


def test_memory_is_bounded_when_a_peer_is_down(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consistency, "COMPARED_BUCKETS_MAX", 10)
    for bucket in range(1, 101):
        log.close("0", bucket, {bucket: 3})
        assert len(log.audit._replicas["0"].order) <= 10
    assert log.audit.uncompared > 80
    assert log.audit.floor >= 90
    found = log.close("1", 100, dict.fromkeys(range(1, 101), 4))
    assert 0 < len(found) <= 10
    assert found[-1].bucket == 100


def restarted(log: Log, forgotten: int = 0) -> Log:
    """Somebody who reads the log from a log snapshot on, that was written now."""
    plain = log.log_state.snapshot(log.offset + 1, forgotten)
    log_snapshot = replace(
        plain,
        replicas=tuple(replace(r, history=log.audit.history(r.replica)) for r in plain.replicas),
    )
    again = Log(log.writers, log.offset, dict(log.batches), dict(log.epochs), dict(log.tips))
    again.log_state.adopt(log_snapshot)
    adopted = Outcome(accepted=True, reason="adopted", replica="")
    assert again.audit.seen(again.log_state, log_snapshot, adopted) == []
    return again


def test_cn4_what_was_closed_before_a_snapshot_is_not_compared_and_what_comes_after_it_is(
    log: Log,
) -> None:
    log.close("0", 4, {2: 3, 3: 4, 6: 5})
    log.close("1", 1, {2: 9})
    again = restarted(log)
    assert again.audit.floor == 4
    assert again.audit.uncompared == 2
    assert again.close("1", 5, {3: 9}) == [], (
        "wrong, but the log snapshot does not say what the first one made"
    )
    assert again.close("0", 6, {6: 1}) == []
    (found,) = again.close("1", 6, {6: 9})
    assert (found.bucket, found.first, again.audit.compared) == (6, ("0", 20, 6), 1), (
        "bucket 6 was begun before"
    )


def test_cn4_a_history_goes_on_after_a_snapshot(log: Log) -> None:
    """The same for both, so that they are compared for ever; one that was not known stays so."""
    log.close("0", 3, {2: 3})
    log.close("1", 3, {2: 3})
    for replica in ("0", "1"):
        log.begin(replica, "g")
        log.close(replica, 4, {4: 1})
    assert (log.audit.compared, log.audit.history("0")) == (2, log.audit.history("1"))
    again = restarted(restarted(log))
    again.close("0", 5, {5: 1})
    assert len(again.close("1", 5, {5: 2})) == 1
    log.begin("1", "h", version=2)
    again = restarted(log)
    again.close("1", 5, {5: 2})
    assert again.close("0", 5, {5: 1}) == [], (
        "another plan since a log snapshot that was written just before its first record"
    )
    assert again.audit.history("1") == after_another_plan(log)


def after_another_plan(log: Log) -> str:
    """Return the verdict on the whole log."""
    log.close("1", 5, {5: 2})
    return log.audit.history("1")


def test_cn4_what_a_base_record_names_is_known_with_and_without_a_snapshot_after_it() -> None:
    """Found by LS1 (``test_log_snapshots_properties``): the reader of the whole log knew less."""
    log = Log()
    log.begin("0", "plan of 0")
    log.begin("1", "plan of 1")
    log.close("0", 1, {})
    log.close("0", 1, {2: 7}, base=0)
    readers = log, restarted(log)
    for reader in readers:
        reader.close("0", 2, {})
    assert [reader.close("1", 2, {}) for reader in readers] == [
        [Mismatch("s", 2, ("0", 10, 7), ("1", 0, 0), "0", is_of_one_plan=False)] for _ in readers
    ]


def test_cn4_what_a_snapshot_has_forgotten_is_not_counted(log: Log) -> None:
    log.close("0", 4, {2: 3, 3: 4})
    assert restarted(log, 2).audit.uncompared == 1
    assert restarted(log, 4).audit.uncompared == 0


def test_an_alarm_is_raised_once_and_known_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    mismatch = Mismatch("s", 3, ("1", 10, 4), ("0", 10, 5))
    book, restarted_book = AlarmBook(), AlarmBook()
    book.known(Alarm("other", "s", 3, "x", 1))
    alarm = book.alarm(mismatch, 5)
    assert alarm == Alarm("digest_mismatch", "s", 3, mismatch.text(), 5)
    assert book.alarm(mismatch, 6) is None
    restarted_book.known(alarm)
    assert restarted_book.alarm(mismatch, 7) is None
    monkeypatch.setattr(consistency, "ALARMS_PER_PAIR_MAX", 3)
    assert book.alarm(Mismatch("s", 4, ("0", 1, 1), ("1", 1, 2)), 8) is not None
    assert book.alarm(Mismatch("s", 5, ("0", 1, 1), ("1", 1, 2)), 8) is None


def test_the_end_of_a_branch_is_no_news(log: Log) -> None:
    assert log.take(BranchEnded("0", log.epochs["0"], 1)) == []


def test_tentative_buckets_are_not_compared(log: Log) -> None:
    log.close("0", 1, {})
    log.close("1", 1, {})
    log.close("0", 2, {2: 1}, kind=BoundaryKind.TENTATIVE, branch=(log.epochs["0"], 1), base=1)
    assert (
        log.close("1", 2, {2: 2}, kind=BoundaryKind.TENTATIVE, branch=(log.epochs["1"], 1), base=1)
        == []
    )
    assert log.audit.compared == 0


def test_a_gap_is_reported_once_also_after_a_restart() -> None:
    gap = Alarm("gap", "s", 4, "buckets 4..9 are given up", 1)
    book = AlarmBook()
    assert book.is_new(gap)
    assert not book.is_new(replace(gap, written_ms=2))
    restarted_book = AlarmBook()
    restarted_book.known(gap)
    assert not restarted_book.is_new(gap)
    assert book.is_new(replace(gap, bucket=10))


class Reader:
    """Reads a log, and keeps the alarms."""

    def __init__(self, log: StageLog) -> None:
        self._log = log
        self.book = GapBook("s", 2, width_ms=100)
        self.alarms = list[Alarm]()

    def add(self, entry: LogEntry) -> None:
        self.see(entry, self._log.add(entry))

    def see(self, entry: LogEntry, outcome: Outcome) -> None:
        alarm = self.book.seen(entry, outcome, 77)
        if alarm is not None:
            self.alarms.append(alarm)


def test_a_gap_is_one_alarm_and_its_buckets_are_counted() -> None:
    log = StageLog()
    reader = Reader(log)
    log.begin()
    reader.add(log.record(10, part(10, 1)))
    log.begin()
    reader.add(log.record(15, fresh=True, missing="a"))
    reader.add(log.record(16, missing="a"))
    reader.add(log.record(17, missing="a"))
    reader.add(log.record(20, part(18, 5)))
    (alarm,) = reader.alarms
    assert (alarm.kind, alarm.stream, alarm.bucket, alarm.written_ms) == ("gap", "s", 11, 77)
    assert "buckets 11..17 (times 1000 to 1700 ms)" in alarm.text
    assert reader.book.lost == 7


def test_only_stages_have_gaps() -> None:
    log = StageLog()
    reader = Reader(log)
    log.begin()
    reader.add(
        replace(log.record(5, fresh=True, missing="a"), positions=(InputPosition("t", 0, 1, 1),))
    )
    branch = replace(log.record(9, missing="a"), kind=BoundaryKind.TENTATIVE, branch=(0, 1), base=5)
    reader.add(branch)
    reader.add(log.record(12, fresh=True, missing="a", epoch=55))
    assert (reader.alarms, reader.book.lost) == ([], 0)


def test_a_gap_after_a_snapshot_begins_where_it_does() -> None:
    before = forgetful()
    log = before.from_snapshot()
    reader = Reader(log)
    snapshot = before.log_state.snapshot(before.offset)
    reader.see(snapshot, Outcome(accepted=False, reason="log_snapshot", replica=""))
    reader.see(snapshot, Outcome(accepted=True, reason="adopted", replica=""))
    reader.add(log.record(15, fresh=True, missing="a"))
    (alarm,) = reader.alarms
    assert (alarm.bucket, reader.book.lost) == (11, 5)
