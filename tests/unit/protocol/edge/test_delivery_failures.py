"""How long each half of a delivery pauses after a failure, and when it ends."""

from __future__ import annotations

from anabranch.protocol.edge.delivery_failures import (
    FAILOVER_RETRY_MS,
    PAUSES_MS,
    REJECTED_RETRY_MS,
    TOO_LARGE_RETRY_MS,
    UNKNOWN_MAX,
    DeliveryFailure,
    UnknownOutcomes,
    failed_failover,
    rejected_size,
)


def test_df1_what_the_next_attempt_may_settle_is_tried_at_once() -> None:
    unknown = UnknownOutcomes()
    for _ in range(2):
        assert PAUSES_MS[unknown.another()] == 0
        assert PAUSES_MS[unknown.another()] == PAUSES_MS[unknown.another()] == FAILOVER_RETRY_MS
        unknown.settled()
    assert PAUSES_MS[rejected_size(1_000)] == 0, "larger ones are left out from now on"


def test_df2_what_only_a_person_can_change_is_rarely_tried() -> None:
    assert PAUSES_MS[rejected_size(None)] == REJECTED_RETRY_MS
    assert PAUSES_MS[failed_failover(is_lost=True)] == REJECTED_RETRY_MS
    assert PAUSES_MS[failed_failover(is_lost=False)] == FAILOVER_RETRY_MS
    assert PAUSES_MS[DeliveryFailure.TOO_LARGE] == TOO_LARGE_RETRY_MS
    assert PAUSES_MS.keys() == set(DeliveryFailure)


def test_df3_so_many_unknown_outcomes_end_the_corrected_half() -> None:
    unknown = UnknownOutcomes()
    for number in range(1, UNKNOWN_MAX + 1):
        unknown.another()
        assert unknown.are_too_many == (number == UNKNOWN_MAX)
    unknown.settled()
    assert not unknown.are_too_many
