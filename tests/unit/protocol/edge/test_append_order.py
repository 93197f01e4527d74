"""Every order of the steps, ended at every place: only those that the rules allow are right."""

from __future__ import annotations

from itertools import permutations

from anabranch.protocol.edge.append_order import APPEND_ORDER, AppendStep


def wrong(done: tuple[AppendStep, ...]) -> set[str]:
    """Return what is wrong when a process ends after these steps. Its batch has a record that is
    part of the stream, and one that is late by the boundary of the previous record, which is in
    flight.
    """
    found = set()
    is_named = AppendStep.SEND_RECORD in done
    before_is_in_log = AppendStep.AWAIT_RECORD in done
    if is_named and not before_is_in_log:
        found.add("AO1: goes on from a record that may not count")
    if is_named and AppendStep.AWAIT_BLOCKS not in done:
        found.add("AO1, AO2: names blocks that are not there")
    if is_named and AppendStep.WRITE_DEAD_LETTERS not in done:
        found.add("AO2: what was late is nowhere")
    if AppendStep.WRITE_DEAD_LETTERS in done and not before_is_in_log:
        found.add("AO3: the next process takes what was late")
    return found


def right(order: tuple[AppendStep, ...]) -> bool:
    return not any(wrong(order[:ended]) for ended in range(len(order) + 1))


def test_whenever_a_process_ends_nothing_is_lost_or_taken_twice() -> None:
    assert sorted(APPEND_ORDER, key=lambda step: step.value) == list(AppendStep)
    assert right(APPEND_ORDER)


def test_no_other_order_is_right_but_for_when_blocks_are_waited_for() -> None:
    others = [step for step in APPEND_ORDER if step is not AppendStep.AWAIT_BLOCKS]
    for order in permutations(AppendStep):
        is_rest_alike = [step for step in order if step is not AppendStep.AWAIT_BLOCKS] == others
        assert right(order) == (is_rest_alike and order[-1] is AppendStep.SEND_RECORD), order
