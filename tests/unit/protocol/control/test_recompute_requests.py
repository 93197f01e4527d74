"""ASK: who asks when, who answers (invariants RQ1-RQ8)."""

from __future__ import annotations

import pytest

from anabranch.protocol.control.recompute_requests import (
    ASK_AGAIN_MS,
    ASK_REJECTED_MS,
    ASK_TAKEN_EVERY_MS,
    ASK_TAKEN_MS,
    ASK_TURN_MS,
    ASKS_MAX,
    RecomputeReplies,
    RecomputeRequests,
    RequestState,
)
from anabranch.protocol.control.records import Ask, AskOutcome, AskReply

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
    ask = requests.lacking("means", first, last, now_ms)
    assert ask is not None
    return ask


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
            requests.heard(answer(ask, AskOutcome.TAKEN), now_ms)
            now_ms += ASK_TAKEN_EVERY_MS
            assert requests.lacking("means", 5, 9, now_ms) is None
        now_ms += ASK_TAKEN_MS - ASK_TAKEN_EVERY_MS
        assert request(requests, now_ms=now_ms).number > ask.number, "he says nothing any more"

    def test_nobody_is_asked_for_a_source(self, requests: RecomputeRequests) -> None:
        assert requests.lacking("reports", 5, 9, NOW) is None
        assert requests.state("reports") is None
        assert requests.describe("reports") == "no replica can recompute reports: it is a source"

    def test_rq2_it_is_not_repeated_while_there_is_hope(self, requests: RecomputeRequests) -> None:
        request(requests)
        assert requests.lacking("means", 5, 9, NOW + ASK_AGAIN_MS - 1) is None
        assert requests.lacking("means", 6, 8, NOW + ASK_AGAIN_MS - 1) is None, (
            "what is still gone is within it"
        )

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
            requests.heard(answer(ask, outcome, replica), NOW)
        assert requests.state("means") is state
        assert requests.lacking("means", 5, 9, NOW + patience_ms - 1) is None
        again = requests.lacking("means", 5, 9, NOW + patience_ms)
        assert again is not None
        assert again.number > ask.number, "RQ1"
        assert requests.state("means") is RequestState.SENT

    def test_rq2_other_buckets_are_asked_for_at_once(self, requests: RecomputeRequests) -> None:
        first = request(requests)
        assert request(requests, 4, 9).number == first.number + 1
        assert request(requests, 5, 10).number == first.number + 2

    def test_a_clock_that_jumps_back_makes_an_ask_come_early(
        self, requests: RecomputeRequests
    ) -> None:
        assert request(requests).number == NOW
        assert request(requests, now_ms=NOW - 1).number == NOW + 1, "RQ1"

    def test_answers_to_others_and_to_older_asks_do_not_count(
        self, requests: RecomputeRequests
    ) -> None:
        ask = request(requests)
        for other in ({"reader": "delivery.out"}, {"number": ask.number - 1}, {"stream": "speeds"}):
            requests.heard(answer(ask, AskOutcome.TAKEN, **other), NOW)
        assert requests.state("means") is RequestState.SENT

    def test_blocks_that_are_there_end_it(self, requests: RecomputeRequests) -> None:
        ask = request(requests)
        requests.there("means")
        requests.there("means")
        requests.heard(answer(ask, AskOutcome.TAKEN), NOW)
        assert requests.state("means") is None

    def test_people_are_told(self, requests: RecomputeRequests) -> None:
        ask = request(requests)
        requests.heard(answer(ask, AskOutcome.UNABLE, "0", "its input is gone"), NOW)
        assert (
            requests.describe("means")
            == "requested buckets 5..9 of means (replica 0: its input is gone)"
        )
        requests.heard(answer(ask, AskOutcome.TAKEN, "1"), NOW)
        assert requests.describe("means") == "replica 1 recomputes buckets 5..9 of means"
        requests.heard(answer(ask, AskOutcome.RECOMPUTED, "1"), NOW)
        assert requests.describe("means") == "buckets 5..9 of means were recomputed"
        requests.heard(answer(ask, AskOutcome.DIFFERENT, "1", "bucket 6 has other rows"), NOW)
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
        zero.heard(ask_of(), 0)
        assert zero.due(0) == ask_of()

    @pytest.mark.parametrize(
        "ask", [ask_of(stream="speeds"), ask_of(first=0), ask_of(first=9, last=5)]
    )
    def test_what_is_no_ask_for_it_is_ignored(self, ask: Ask) -> None:
        zero = replica()
        zero.heard(ask, 0)
        assert zero.due(0) is None

    def test_rq4_one_at_a_time(self) -> None:
        zero = replica()
        zero.heard(ask_of(), 0)
        zero.heard(ask_of(reader="delivery.out"), 0)
        assert zero.due(0) == ask_of()
        assert zero.due(0) is None
        zero.done()
        assert zero.due(0) == ask_of(reader="delivery.out")

    def test_rq4_the_newest_of_a_reader_counts(self) -> None:
        zero = replica()
        for number in (2, 3, 1):
            zero.heard(ask_of(number), 0)
        assert zero.due(0) == ask_of(3)
        zero.heard(ask_of(3), 0)
        zero.done()
        assert zero.due(0) is None, "it was heard twice"
        zero.heard(ask_of(4), 0)
        assert zero.due(0) == ask_of(4)

    def test_rq4_no_more_readers_than_the_limit(self) -> None:
        zero = replica()
        for i in range(ASKS_MAX + 1):
            zero.heard(ask_of(reader=f"r{i}"), 0)
        zero.heard(ask_of(2, reader="r0"), 0)
        found = []
        while (ask := zero.due(0)) is not None:
            found.append(ask)
            zero.done()
        assert len(found) == ASKS_MAX
        assert found[0] == ask_of(2, reader="r0")

    def test_rq6_the_next_one_waits_for_its_turn(self) -> None:
        one = replica("1")
        one.heard(ask_of(), 0)
        assert one.due(ASK_TURN_MS - 1) is None
        assert one.due(ASK_TURN_MS) == ask_of()

    def test_rq5_while_a_peer_works_nothing_is_begun(self) -> None:
        one = replica("1")
        one.heard(ask_of(), 0)
        one.heard(ask_of(reader="delivery.out"), 0)
        one.heard(answer(ask_of(), AskOutcome.TAKEN, "0"), 1)
        assert one.due(ASK_TURN_MS) is None
        one.heard(answer(ask_of(), AskOutcome.RECOMPUTED, "0"), ASK_TURN_MS)
        assert one.due(ASK_TURN_MS) == ask_of(reader="delivery.out"), "the first is answered"

    def test_rq5_a_peer_that_does_not_answer_is_waited_for_no_longer(self) -> None:
        one = replica("1")
        one.heard(answer(ask_of(), AskOutcome.TAKEN, "0"), 0)
        one.heard(ask_of(2), ASK_TAKEN_MS - ASK_TURN_MS)
        assert one.due(ASK_TAKEN_MS - 1) is None
        assert one.due(ASK_TAKEN_MS) == ask_of(2)

    def test_rq8_a_peer_that_says_again_that_it_works_is_waited_for(self) -> None:
        zero, one = replica(), replica("1")
        for each in (zero, one):
            each.heard(ask_of(), 0)
        assert zero.to_say_again(ASK_TAKEN_EVERY_MS) is None, "nothing is worked at"
        assert zero.due(0) == ask_of()
        now_ms = 0
        for _ in range(2 * ASK_TAKEN_MS // ASK_TAKEN_EVERY_MS):
            one.heard(answer(ask_of(), AskOutcome.TAKEN, "0"), now_ms)
            assert zero.to_say_again(now_ms + ASK_TAKEN_EVERY_MS - 1) is None
            now_ms += ASK_TAKEN_EVERY_MS
            assert zero.to_say_again(now_ms) == ask_of()
            one.heard(ask_of(2), now_ms - ASK_TURN_MS)
            assert one.due(now_ms) is None
        zero.done()
        assert zero.to_say_again(now_ms + ASK_TAKEN_EVERY_MS) is None
        now_ms += ASK_TAKEN_MS - ASK_TAKEN_EVERY_MS
        one.heard(ask_of(3), now_ms - ASK_TURN_MS)
        assert one.due(now_ms) == ask_of(3), "it has said nothing for so long"

    def test_a_rejection_makes_it_the_turn_of_the_next(self) -> None:
        one = replica("1")
        one.heard(ask_of(), 0)
        one.heard(answer(ask_of(), AskOutcome.UNABLE, "0"), 5)
        assert one.due(5) == ask_of()

    @pytest.mark.parametrize("number", [0, 2])
    def test_an_answer_to_another_ask_changes_nothing(self, number: int) -> None:
        one = replica("1")
        one.heard(ask_of(), 0)
        one.heard(answer(ask_of(number), AskOutcome.RECOMPUTED, "0"), 5)
        one.heard(answer(ask_of(reader="delivery.out"), AskOutcome.RECOMPUTED, "0"), 5)
        assert one.due(ASK_TURN_MS) == ask_of()

    def test_own_answers_are_no_news(self) -> None:
        one = replica("1")
        one.heard(ask_of(), 0)
        one.heard(answer(ask_of(), AskOutcome.TAKEN, "1"), 5)
        assert one.due(ASK_TURN_MS) == ask_of()

    def test_rq7_an_old_ask_is_dropped(self) -> None:
        zero = replica()
        zero.heard(ask_of(), 0)
        assert zero.due(ASK_AGAIN_MS) is None
        assert zero.due(0) is None
