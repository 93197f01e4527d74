"""ASK: who asks when, who answers (invariants RQ1-RQ8). Buckets that are made again: what is run,
and whether the result may be used (RC1-RC6).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest

from anabranch.protocol.control.records import Ask, AskOutcome, AskReply
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import Part, Recomputed
from anabranch.protocol.log.timeline import (
    Answer,
    Copy,
    Create,
    CutBack,
    FindBatches,
    FindMissing,
    FindNewest,
    FindWhole,
    Step,
    Timeline,
    carry_out,
)
from anabranch.protocol.stage import recomputation
from anabranch.protocol.stage.planner import PlanTraits, QueryPosition, TakenBucket
from anabranch.protocol.stage.recomputation import (
    ASK_AGAIN_MS,
    ASK_REJECTED_MS,
    ASK_TAKEN_EVERY_MS,
    ASK_TAKEN_MS,
    ASK_TURN_MS,
    ASKS_MAX,
    Recomputation,
    RecomputeReplies,
    RecomputeRequests,
    RequestState,
    recomputed_records,
    split_retained,
)
from harness.boundary_logs import part, record, started, state_after
from harness.present import present

NOW = 1_700_000_000_000
READER = "processing.tolls.0"


@pytest.fixture
def requests() -> RecomputeRequests:
    return RecomputeRequests(READER, {"means": ["0", "1"]})


def answer(
    ask: Ask, outcome: AskOutcome, replica: str = "0", reason: str = "", **other: object
) -> AskReply:
    fields = {"stream": ask.stream, "reader": ask.reader, "number": ask.number} | other
    return AskReply(replica=replica, outcome=outcome, reason=reason, written_ms=0, **fields)  # type: ignore[arg-type]


def request(requests: RecomputeRequests, first: int = 5, last: int = 9, now_ms: int = NOW) -> Ask:
    return present(requests.lacking("means", first, last, now_ms, wall_ms=now_ms))


class TestReader:
    def test_an_ask_names_what_is_gone(self, requests: RecomputeRequests) -> None:
        assert requests.describe("means") == "no request for means yet"
        assert request(requests) == Ask("means", READER, NOW, 5, 9, NOW)
        assert requests.state("means") is RequestState.SENT
        assert requests.describe("means") == "requested buckets 5..9 of means"

    def test_rq8_while_somebody_works_nothing_is_repeated(
        self, requests: RecomputeRequests
    ) -> None:
        ask, now_ms = request(requests), NOW
        for _ in range(2 * ASK_TAKEN_MS // ASK_TAKEN_EVERY_MS):
            requests.receive(answer(ask, AskOutcome.TAKEN), now_ms)
            now_ms += ASK_TAKEN_EVERY_MS
            assert requests.lacking("means", 5, 9, now_ms, wall_ms=now_ms) is None
        now_ms += ASK_TAKEN_MS - ASK_TAKEN_EVERY_MS
        assert request(requests, now_ms=now_ms).number > ask.number, "he says nothing any more"

    def test_nobody_is_asked_for_a_stream_of_another_pipeline(
        self, requests: RecomputeRequests
    ) -> None:
        assert requests.lacking("reports", 5, 9, NOW, wall_ms=NOW) is None
        assert requests.state("reports") is None
        assert requests.describe("reports") == (
            "no replica can recompute reports: it is another pipeline's"
        )

    def test_rq2_it_is_not_repeated_while_there_is_hope(self, requests: RecomputeRequests) -> None:
        request(requests)
        assert (
            requests.lacking("means", 5, 9, NOW + ASK_AGAIN_MS - 1, wall_ms=NOW + ASK_AGAIN_MS - 1)
            is None
        )
        assert (
            requests.lacking("means", 6, 8, NOW + ASK_AGAIN_MS - 1, wall_ms=NOW + ASK_AGAIN_MS - 1)
            is None
        ), "what is still gone is within it"

    def test_a_wall_clock_that_is_set_back_repeats_nothing_and_numbers_go_on(
        self, requests: RecomputeRequests
    ) -> None:
        ask = request(requests)
        early, late = NOW + ASK_AGAIN_MS - 1, NOW + ASK_AGAIN_MS
        assert requests.lacking("means", 5, 9, early, wall_ms=early - 3_600_000) is None
        again = present(requests.lacking("means", 5, 9, late, wall_ms=late - 3_600_000))
        assert (again.number, again.written_ms) == (ask.number + 1, late - 3_600_000)

    @pytest.mark.parametrize(
        ("outcomes", "state", "patience_ms"),
        [
            ([], RequestState.SENT, ASK_AGAIN_MS),
            ([("0", AskOutcome.TAKEN)], RequestState.TAKEN, ASK_TAKEN_MS),
            (
                [("0", AskOutcome.TAKEN), ("0", AskOutcome.RECOMPUTED)],
                RequestState.RECOMPUTED,
                ASK_AGAIN_MS,
            ),
            ([("0", AskOutcome.UNABLE)], RequestState.SENT, ASK_AGAIN_MS),
            ([("0", AskOutcome.UNABLE), ("1", AskOutcome.TAKEN)], RequestState.TAKEN, ASK_TAKEN_MS),
            (
                [("0", AskOutcome.UNABLE), ("0", AskOutcome.UNABLE)],
                RequestState.SENT,
                ASK_AGAIN_MS,
            ),
            (
                [("0", AskOutcome.UNABLE), ("1", AskOutcome.DIFFERENT)],
                RequestState.REJECTED,
                ASK_REJECTED_MS,
            ),
            ([("stranger", AskOutcome.TAKEN)], RequestState.SENT, ASK_AGAIN_MS),
        ],
    )
    def test_the_table_of_states(
        self,
        requests: RecomputeRequests,
        outcomes: list[tuple[str, AskOutcome]],
        state: RequestState,
        patience_ms: int,
    ) -> None:
        ask = request(requests)
        for replica, outcome in outcomes:
            requests.receive(answer(ask, outcome, replica), NOW)
        assert requests.state("means") is state
        assert (
            requests.lacking("means", 5, 9, NOW + patience_ms - 1, wall_ms=NOW + patience_ms - 1)
            is None
        )
        again = present(
            requests.lacking("means", 5, 9, NOW + patience_ms, wall_ms=NOW + patience_ms)
        )
        assert again.number > ask.number, "RQ1"
        assert requests.state("means") is RequestState.SENT

    def test_rq2_other_buckets_are_asked_for_at_once(self, requests: RecomputeRequests) -> None:
        first = request(requests)
        assert request(requests, 4, 9).number == first.number + 1
        assert request(requests, 5, 10).number == first.number + 2

    def test_answers_to_others_and_to_older_asks_do_not_count(
        self, requests: RecomputeRequests
    ) -> None:
        ask = request(requests)
        for other in ({"reader": "delivery.out"}, {"number": ask.number - 1}, {"stream": "speeds"}):
            requests.receive(answer(ask, AskOutcome.TAKEN, **other), NOW)
        assert requests.state("means") is RequestState.SENT

    def test_blocks_that_are_there_end_it(self, requests: RecomputeRequests) -> None:
        ask = request(requests)
        requests.there("means")
        requests.there("means")
        requests.receive(answer(ask, AskOutcome.TAKEN), NOW)
        assert requests.state("means") is None

    def test_people_are_told(self, requests: RecomputeRequests) -> None:
        ask = request(requests)
        requests.receive(answer(ask, AskOutcome.UNABLE, "0", "its input is gone"), NOW)
        assert (
            requests.describe("means")
            == "requested buckets 5..9 of means (replica 0: its input is gone)"
        )
        requests.receive(answer(ask, AskOutcome.TAKEN, "1"), NOW)
        assert requests.describe("means") == "replica 1 recomputes buckets 5..9 of means"
        requests.receive(answer(ask, AskOutcome.RECOMPUTED, "1"), NOW)
        assert requests.describe("means") == "buckets 5..9 of means were recomputed"
        requests.receive(answer(ask, AskOutcome.DIFFERENT, "1", "bucket 6 has other rows"), NOW)
        assert (
            requests.describe("means")
            == "no replica can recompute buckets 5..9 of means: replica 0: its input is gone;"
            " replica 1: bucket 6 has other rows"
        )


def ask_of(
    number: int = 1, reader: str = READER, first: int = 5, last: int = 9, stream: str = "means"
) -> Ask:
    return Ask(stream, reader, number, first, last, 0)


def replica(name: str = "0") -> RecomputeReplies:
    return RecomputeReplies("means", name, ["0", "1", "2"])


class TestReplica:
    def test_the_first_takes_it_at_once(self) -> None:
        zero = replica()
        assert zero.due(0) is None
        zero.receive(ask_of(), 0)
        assert zero.due(0) == ask_of()

    @pytest.mark.parametrize(
        "ask", [ask_of(stream="speeds"), ask_of(first=0), ask_of(first=9, last=5)]
    )
    def test_what_is_no_ask_for_it_is_ignored(self, ask: Ask) -> None:
        zero = replica()
        zero.receive(ask, 0)
        assert zero.due(0) is None

    def test_rq4_one_at_a_time(self) -> None:
        zero = replica()
        zero.receive(ask_of(), 0)
        zero.receive(ask_of(reader="delivery.out"), 0)
        assert zero.due(0) == ask_of()
        assert zero.due(0) is None
        zero.done()
        assert zero.due(0) == ask_of(reader="delivery.out")

    def test_rq4_the_newest_of_a_reader_counts(self) -> None:
        zero = replica()
        for number in (2, 3, 1):
            zero.receive(ask_of(number), 0)
        assert zero.due(0) == ask_of(3)
        zero.receive(ask_of(3), 0)
        zero.done()
        assert zero.due(0) is None, "it was heard twice"
        zero.receive(ask_of(4), 0)
        assert zero.due(0) == ask_of(4)

    def test_rq4_no_more_readers_than_the_limit(self) -> None:
        zero = replica()
        for i in range(ASKS_MAX + 1):
            zero.receive(ask_of(reader=f"r{i}"), 0)
        zero.receive(ask_of(2, reader="r0"), 0)
        found = []
        while (ask := zero.due(0)) is not None:
            found.append(ask)
            zero.done()
        assert len(found) == ASKS_MAX
        assert found[0] == ask_of(2, reader="r0")

    def test_rq6_the_next_one_waits_for_its_turn(self) -> None:
        one = replica("1")
        one.receive(ask_of(), 0)
        assert one.due(ASK_TURN_MS - 1) is None
        assert one.due(ASK_TURN_MS) == ask_of()

    def test_rq5_while_a_peer_works_nothing_is_begun(self) -> None:
        one = replica("1")
        one.receive(ask_of(), 0)
        one.receive(ask_of(reader="delivery.out"), 0)
        one.receive(answer(ask_of(), AskOutcome.TAKEN, "0"), 1)
        assert one.due(ASK_TURN_MS) is None
        one.receive(answer(ask_of(), AskOutcome.RECOMPUTED, "0"), ASK_TURN_MS)
        assert one.due(ASK_TURN_MS) == ask_of(reader="delivery.out"), "the first is answered"

    def test_rq5_a_peer_that_does_not_answer_is_waited_for_no_longer(self) -> None:
        one = replica("1")
        one.receive(answer(ask_of(), AskOutcome.TAKEN, "0"), 0)
        one.receive(ask_of(2), ASK_TAKEN_MS - ASK_TURN_MS)
        assert one.due(ASK_TAKEN_MS - 1) is None
        assert one.due(ASK_TAKEN_MS) == ask_of(2)

    def test_rq8_a_peer_that_says_again_that_it_works_is_waited_for(self) -> None:
        zero, one = replica(), replica("1")
        for each in (zero, one):
            each.receive(ask_of(), 0)
        assert zero.to_say_again(ASK_TAKEN_EVERY_MS) is None, "nothing is worked at"
        assert zero.due(0) == ask_of()
        now_ms = 0
        for _ in range(2 * ASK_TAKEN_MS // ASK_TAKEN_EVERY_MS):
            one.receive(answer(ask_of(), AskOutcome.TAKEN, "0"), now_ms)
            assert zero.to_say_again(now_ms + ASK_TAKEN_EVERY_MS - 1) is None
            now_ms += ASK_TAKEN_EVERY_MS
            assert zero.to_say_again(now_ms) == ask_of()
            one.receive(ask_of(2), now_ms - ASK_TURN_MS)
            assert one.due(now_ms) is None
        zero.done()
        assert zero.to_say_again(now_ms + ASK_TAKEN_EVERY_MS) is None
        now_ms += ASK_TAKEN_MS - ASK_TAKEN_EVERY_MS
        one.receive(ask_of(3), now_ms - ASK_TURN_MS)
        assert one.due(now_ms) == ask_of(3), "it has said nothing for so long"

    def test_a_rejection_makes_it_the_turn_of_the_next(self) -> None:
        one = replica("1")
        one.receive(ask_of(), 0)
        one.receive(answer(ask_of(), AskOutcome.UNABLE, "0"), 5)
        assert one.due(5) == ask_of()

    @pytest.mark.parametrize("number", [0, 2])
    def test_an_answer_to_another_ask_changes_nothing(self, number: int) -> None:
        one = replica("1")
        one.receive(ask_of(), 0)
        one.receive(answer(ask_of(number), AskOutcome.RECOMPUTED, "0"), 5)
        one.receive(answer(ask_of(reader="delivery.out"), AskOutcome.RECOMPUTED, "0"), 5)
        assert one.due(ASK_TURN_MS) == ask_of()

    def test_own_answers_are_no_news(self) -> None:
        one = replica("1")
        one.receive(ask_of(), 0)
        one.receive(answer(ask_of(), AskOutcome.TAKEN, "1"), 5)
        assert one.due(ASK_TURN_MS) == ask_of()

    def test_rq7_an_old_ask_is_dropped(self) -> None:
        zero = replica()
        zero.receive(ask_of(), 0)
        assert zero.due(ASK_AGAIN_MS) is None
        assert zero.due(0) is None


STATELESS = PlanTraits(is_stateful=False, is_batch_safe=True)
STATEFUL = PlanTraits(is_stateful=True, is_batch_safe=True)
WANTED: list[TakenBucket] = [(4, "0", (part(4),)), (6, "0", (part(6), part(6, "b")))]


def inputs() -> dict[str, LogState]:
    return {
        "a": state_after(
            started(), record(0, 0, 12, tuple(part(bucket) for bucket in range(1, 13)))
        )
    }


def made(traits: PlanTraits = STATELESS) -> Recomputation:
    return Recomputation(WANTED, inputs(), traits)


def taken(of: Recomputation, position: QueryPosition) -> tuple[list[int], QueryPosition] | None:
    plan = of.plan(position)
    if plan is None:
        return None
    assert plan.before == position
    return [bucket for _, buckets in plan.inputs for bucket, _, _ in buckets], plan.after


def test_rc2_a_stateless_query_begins_right_before_the_range_and_ends_with_it() -> None:
    of = made()
    assert taken(of, QueryPosition()) == ([4, 5, 6], QueryPosition(1, 6, has_rows=True))
    assert taken(of, QueryPosition(1, 6, has_rows=True)) is None


def test_rc2_a_plan_that_is_not_batch_safe_takes_one_bucket_after_the_other() -> None:
    of = Recomputation(WANTED, inputs(), PlanTraits(is_stateful=False, is_batch_safe=False))
    position, buckets = QueryPosition(), []
    while (found := taken(of, position)) is not None:
        buckets.append(found[0])
        position = found[1]
    assert buckets == [[4], [5], [6]]


def test_rc2_a_stateful_query_skips_nothing() -> None:
    of = made(STATEFUL)
    assert taken(of, QueryPosition(7, 2, has_rows=True)) == (
        [3, 4, 5, 6],
        QueryPosition(8, 6, has_rows=True),
    )
    assert taken(of, QueryPosition(8, 6, has_rows=True)) is None


TIMELINE = Timeline("000000000007-000000", 2, BatchId("earlier", 2), floor=1)
NAME = "000000000007-999999"
BASES = {
    BatchId(TIMELINE.name, 5): 9,
    BatchId(TIMELINE.name, 4): 4,
    BatchId(TIMELINE.name, 3): 3,
    BatchId("earlier", 2): 2,
}
"""Highest bucket that each batch's record had begun."""


def began(
    *, newest: Timeline | None = TIMELINE, damaged: tuple[int, ...] = (), missing: int = -2
) -> tuple[str, list[Step]]:
    """(why a stateful query cannot begin, the steps that changed something), where batches 0..5 are
    in the directory; the blocks after batch ``missing``, and all before it, are gone.
    """
    changed: list[Step] = []

    def perform(step: Step) -> Answer:
        match step:
            case FindNewest():
                return newest
            case FindBatches():
                return (5, 4, 3, 2, 1, 0)
            case FindWhole(_, (batch,)):
                return None if batch in damaged else batch
            case FindMissing(_, batch):
                return "blocks are gone" if batch <= missing else ""
        changed.append(step)
        return None

    return carry_out(made(STATEFUL).beginning(NAME, BASES.get), perform), changed


COPIED = Copy(TIMELINE.name, NAME)


@pytest.mark.parametrize(
    ("damaged", "missing", "why", "then"),
    [
        ((), -2, "", CutBack(NAME, 3, keep_plan=False)),
        ((3,), -2, "", CutBack(NAME, 2, keep_plan=False)),
        ((2, 3), -2, "", Create(NAME)),
        ((2, 3), -1, "blocks are gone", None),
        ((), 3, "blocks are gone", None),
    ],
    ids=["newest", "damaged", "none", "nothing", "gone"],
)
def test_rc6_a_stateful_query_begins_in_a_checkpoint_from_before_the_range(
    damaged: tuple[int, ...], missing: int, why: str, then: Step | None
) -> None:
    """The range begins at bucket 4. Batch 5 had begun bucket 9, batch 4 bucket 4; of batches below
    1 it is not known who made them, and of batch 1 not what it had begun.
    """
    assert began(damaged=damaged, missing=missing) == (
        why,
        [COPIED, *([] if then is None else [then])],
    )


def test_rc6_without_any_it_begins_at_the_beginning() -> None:
    assert began(newest=None) == ("", [Create(NAME)])


def test_rc2_a_stateless_query_needs_no_checkpoint() -> None:
    steps = made().beginning(NAME, BASES.get)
    assert next(steps) == FindMissing(NAME, -1)
    assert (made().begins_after, made(STATEFUL).begins_after) == (3, 0)
    assert steps.send("") == Create(NAME)


def test_rc6_what_is_gone_of_the_input_is_reported() -> None:
    buckets_sought: list[int] = []

    def gone(stream: str, buckets: Iterable[TakenBucket]) -> int | None:
        buckets_sought.extend(bucket for bucket, _, _ in buckets)
        return 5 if stream == "a" and 5 in buckets_sought else None

    of = made()
    assert of.lacks(5, gone) == ""
    assert buckets_sought == [6], "what comes after the range is not needed"
    assert of.lacks(3, gone).endswith("the blocks of a from bucket 5 on are deleted")
    streams = inputs()
    streams["a"].forget(4)
    of = Recomputation(WANTED, streams, STATELESS)
    assert of.lacks(3, gone).endswith("the log of a describes its buckets up to 4 no more")
    of = Recomputation([(13, "0", (part(13),))], streams, STATELESS)
    assert of.lacks(12, gone) == "a is not known up to bucket 13"


def test_only_what_is_wanted_is_kept() -> None:
    of = made()
    assert (of.first, of.last, of.wanted) == (4, 6, frozenset({4, 6}))
    of.made((part(3, "x"), part(4, "x"), part(5, "x")), 5)
    finished = [of.is_finished]
    of.made((part(6, "x"), part(6, "y"), part(7, "x")), 6)
    assert [*finished, of.is_finished] == [False, True]
    assert of.different() is None
    assert of.parts() == (part(4, "x"), part(6, "x"), part(6, "y"))


def test_rc3_nothing_is_used_too_early() -> None:
    of = made()
    of.made((part(4), part(6), part(6)), 5)
    with pytest.raises(LocalProtocolError, match="up to 5, and 6 is wanted"):
        of.parts()


@pytest.mark.parametrize(
    "parts",
    [
        (part(4), part(6)),
        (part(4), part(6, rows=2), part(6)),
        (part(4), dataclasses.replace(part(6), digest=8), part(6)),
    ],
)
def test_rc4_one_bucket_that_differs_makes_all_void(parts: tuple[Part, ...]) -> None:
    of = made()
    of.made(parts, 6)
    assert of.different() == 6
    with pytest.raises(LocalProtocolError, match="bucket 6 was recomputed with other rows"):
        of.parts()


def test_rc2_what_a_stateless_query_made_otherwise_is_made_once_more_and_nothing_skipped() -> None:
    """Its rows may have got a later time: those of bucket 4 came with bucket 3."""
    of = made()
    of.made((part(6), part(6)), 6)
    again = present(of.without_skipping())
    assert again.wanted == of.wanted
    assert taken(again, QueryPosition()) == (
        [1, 2, 3, 4, 5, 6],
        QueryPosition(1, 6, has_rows=True),
    )
    again.made((part(6), part(6)), 6)
    assert again.without_skipping() is None, "it has skipped nothing"
    again.made((part(4),), 6)
    assert again.parts() == (part(4), part(6), part(6))


@pytest.mark.parametrize("traits", [STATELESS, STATEFUL])
def test_rc2_what_is_as_it_was_is_not_made_once_more(traits: PlanTraits) -> None:
    of = made(traits)
    of.made((part(4), part(6), part(6)), 6)
    assert of.without_skipping() is None


def test_rc7_what_the_replica_has_itself_is_not_made_again() -> None:
    """Both have closed 1 to 4: bucket 3 of the replica differs, and of its bucket 2 blocks are
    gone, too.
    """
    theirs = tuple(part(bucket) for bucket in range(1, 5))
    mine = tuple(part(bucket, "mine") for bucket in (1, 2, 4))
    state = state_after(
        started("0"),
        started("1"),
        record(0, 0, 4, theirs),
        record(1, 0, 4, (*mine, part(3, "mine", rows=9)), replica="1"),
    )
    wanted = state.stable(1, 4)
    assert [writer for _, writer, _ in wanted] == ["0"] * 4

    def is_gone(writer: str, parts: Iterable[Part]) -> bool:
        assert writer == "1"
        return any(each.bucket == 2 for each in parts)

    parts, rest = split_retained(state, "1", wanted, is_gone)
    assert ([each.bucket for each in parts], {each.attempt for each in parts}) == ([1, 4], {"mine"})
    assert rest == wanted[1:3]


def test_rc5_records_hold_whole_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recomputation, "PARTS_PER_RECORD_MAX", 3)
    parts = (part(2, "a"), part(1, "a"), part(2, "b"), part(3, "a"), part(3, "b"))
    assert list(recomputed_records("0", 5, parts)) == [
        Recomputed("0", 5, (part(1, "a"), part(2, "a"), part(2, "b"))),
        Recomputed("0", 5, (part(3, "a"), part(3, "b"))),
    ]
    assert list(recomputed_records("0", 5, ())) == []
