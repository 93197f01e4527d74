"""Agents with each other, and what the ledgers say to them. What happens on the way is in the
tests of their halves.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.federation.agent import Agent
from anabranch.protocol.federation.contract_book import ContractState
from anabranch.protocol.federation.holdings import TaskEvent, TaskPlace
from anabranch.protocol.federation.movements import (
    BringHome,
    Claim,
    Ended,
    EndReason,
    Prepare,
    Started,
    Withdrawn,
)
from anabranch.protocol.federation.offers import AcceptedTask, OfferAnswer, OfferedTask, TaskOffer
from harness.markets import agent, answer, booked, contract, place, signature, started, stepped

NAME = "north-south:1/north.a"
ON = contract(contract_id="south-east", buyer="south", seller="east", delta=0, fixed_price=1_000)
TASK = OfferedTask("north.a", 10, 950)
WAIT_MS = 31_000
"""The deadline of the contract, and the time to live of an offer."""


def host(price: int = 900, **tasks: int) -> Agent:
    """South, which runs north.a, and may sell to east."""
    made = agent("south", stepped(100, 5_000, 9_000), booked(), booked(ON))
    made.recorded(started(answer(1, AcceptedTask("north.a", 10, price))), 0)
    for task, units in tasks.items():
        made.owns(f"south.{task}", units)
    return made


def sold_on() -> tuple[Agent, str]:
    """South has agreed with east on north.a; and the movement's name."""
    made = host(x=20)
    made.tick(9_000)
    [offer] = made.tick(12_000)
    assert isinstance(offer, TaskOffer)
    assert offer.contract_id == "south-east"
    accepted = OfferAnswer(
        "south-east", 1, "east", offer.number, (AcceptedTask("north.a", 10, 1_000),)
    )
    [prepare] = made.answered(accepted, 12_100)
    assert isinstance(prepare, Prepare)
    return made, prepare.movement_id


def sold_and_started() -> tuple[Agent, str]:
    made, name = sold_on()
    [claim] = made.ready(name, 12_200)
    assert isinstance(claim, Claim)
    entry = Started(
        "south-east",
        name,
        "south",
        12_200,
        "north.a",
        claim.answer,
        signature(claim.answer, "east"),
    )
    assert made.recorded(entry, 12_300) == []
    return made, name


def test_offer_answer_start_and_the_two_sides_agree_who_runs_what() -> None:
    north = agent("north", stepped(100, 500, 1_500), booked(), a=10, b=10, c=10)
    south = agent("south", stepped(100, 900), booked())
    [offer] = north.tick(1_000)
    assert isinstance(offer, TaskOffer)
    assert south.offered(offer, 1_010) == []
    [reply] = south.tick(1_300)
    assert isinstance(reply, OfferAnswer)
    assert reply.tasks == (AcceptedTask("north.a", 10, 900),)
    [prepare] = north.answered(reply, 1_400)
    assert prepare == Prepare("north-south:1000/north.a", "north-south", "north.a", "south")
    [claim] = north.ready(prepare.movement_id, 2_000)
    entry = Started(
        "north-south",
        prepare.movement_id,
        "north",
        2_000,
        "north.a",
        reply,
        signature(reply, "south"),
    )
    assert isinstance(claim, Claim)
    for each in (north, south):
        assert each.recorded(entry, 2_100) == []
    assert place(north) is TaskPlace.AWAY
    assert place(south) is TaskPlace.HERE
    assert (north.holdings.level(), south.holdings.level()) == (20, 10)
    assert (north.participant, north.phase.value, north.counters.offers) == ("north", "resting", 1)
    end = Ended("north-south", prepare.movement_id, "north", 9_000, EndReason.RECALLED)
    for each in (north, south):
        assert each.recorded(end, 9_000) == []
    assert (north.holdings.level(), south.holdings.level()) == (30, 0)
    assert north.holdings.tasks["north.a"].hold_until_ms == 19_000


def test_fa3_a_promise_that_nobody_starts_is_withdrawn_until_the_ledger_has_it() -> None:
    made = agent("south", stepped(100), booked())
    made.offered(TaskOffer("north-south", 1, "north", 1, 1_000, (TASK,)), 0)
    assert len(made.tick(200)) == 1
    assert made.tick(WAIT_MS + 199) == []
    entry = Withdrawn("north-south", NAME, "south", WAIT_MS + 200)
    assert made.tick(WAIT_MS + 200) == [entry]
    assert made.tick(WAIT_MS + 300) == []
    assert made.tick(2 * WAIT_MS + 200) == [replace(entry, at_ms=2 * WAIT_MS + 200)]
    assert made.holdings.level() == 10, "until the ledger says so, it may come"
    assert made.recorded(entry, 70_000) == []
    assert made.holdings.level() == 0


def test_fa3_a_start_that_does_not_get_ready_is_withdrawn_and_the_ledger_decides() -> None:
    made, name = sold_on()
    [entry] = made.tick(12_100 + WAIT_MS)
    assert entry == Withdrawn("south-east", name, "south", 12_100 + WAIT_MS)
    assert made.recorded(entry, 50_000) == []
    assert place(made) in {TaskPlace.HERE, TaskPlace.RETURNING}
    assert made.ready(name, 50_001) == [], "it comes too late"


def test_fa3_a_recall_that_does_not_get_ready_is_dropped_and_tried_again() -> None:
    made, name = sold_and_started()
    del made.holdings.tasks["south.x"]
    [home] = made.tick(23_000)
    assert home == BringHome(name, "north.a")
    later = made.tick(23_000 + WAIT_MS)
    assert later == [home]
    assert made.ready(name, 60_000) == [
        Ended("south-east", name, "south", 60_000, EndReason.RECALLED)
    ]


def test_a_task_that_gets_ready_after_its_recall_was_dropped_comes_home_all_the_same() -> None:
    made, name = sold_and_started()
    made.holdings.apply_event(made.holdings.tasks["north.a"], TaskEvent.RECALLED, 13_000)
    made.holdings.apply_event(made.holdings.tasks["north.a"], TaskEvent.KEPT, 14_000)
    assert made.ready(name, 15_000) == [
        Ended("south-east", name, "south", 15_000, EndReason.RECALLED)
    ]


def test_ready_of_what_is_no_own_movement_says_nothing() -> None:
    made = host()
    assert made.ready("unknown", 0) == []
    assert made.ready(NAME, 0) == [], "it came; its buyer says when"
    made, _ = sold_and_started()
    assert made.ready(NAME, 0) == []


def test_what_a_silent_seller_had_runs_here_when_the_ledger_says_so() -> None:
    made, name = sold_and_started()
    assert made.failed("unknown", EndReason.SILENT, 0) == []
    [entry] = made.failed(name, EndReason.SILENT, 13_000)
    assert entry == Ended("south-east", name, "south", 13_000, EndReason.SILENT)
    assert place(made) is TaskPlace.AWAY
    assert made.recorded(entry, 13_100) == []
    assert place(made) is TaskPlace.HERE
    assert made.failed(name, EndReason.SILENT, 13_200) == []
    assert host().failed(NAME, EndReason.WRONG, 0) == []


def test_fa6_a_task_that_goes_home_comes_back_from_whom_it_was_sold_on_to() -> None:
    made, name = sold_and_started()
    assert made.recorded(
        Ended("north-south", NAME, "north", 20_000, EndReason.RECALLED), 20_000
    ) == [Ended("south-east", name, "south", 20_000, EndReason.RECALLED)]
    assert "north.a" not in made.holdings.tasks


def test_fa6_an_end_that_was_lost_is_written_until_the_ledger_has_it() -> None:
    made, name = sold_and_started()
    made.recorded(Ended("north-south", NAME, "north", 20_000, EndReason.RECALLED), 20_000)
    assert made.tick(21_999) == []
    end = Ended("south-east", name, "south", 22_000, EndReason.RECALLED)
    assert made.tick(22_000) == [end]
    assert made.tick(23_000) == []
    assert made.recorded(replace(end, by="east", why=EndReason.RETURNED), 23_500) == []
    assert made.tick(30_000) == []


def test_fa6_a_buyer_that_has_failed_is_told_so() -> None:
    made, name = sold_and_started()
    made.holdings.tasks["north.a"].failed = EndReason.SILENT
    assert made.recorded(Ended("north-south", NAME, "north", 20_000, EndReason.SILENT), 20_000) == [
        Ended("south-east", name, "south", 20_000, EndReason.SILENT)
    ]


def test_fa6_also_while_it_is_being_sold_whichever_the_ledger_has_first() -> None:
    made, name = sold_on()
    accepted = answer(
        12_000, AcceptedTask("north.a", 10, 1_000), contract_id="south-east", seller="east"
    )
    assert made.recorded(
        Ended("north-south", NAME, "north", 20_000, EndReason.RECALLED), 20_000
    ) == [Withdrawn("south-east", name, "south", 20_000)]
    entry = Started(
        "south-east", name, "south", 1, "north.a", accepted, signature(accepted, "east")
    )
    assert made.recorded(entry, 20_100) == [
        Ended("south-east", name, "south", 20_100, EndReason.RECALLED)
    ]


def test_after_a_crash_the_ledgers_say_what_is_where() -> None:
    """The ledgers in which it is the seller come first: what was sold on had come before."""
    first = answer(1, AcceptedTask("north.a", 10, 900))
    on = OfferAnswer("south-east", 1, "east", 7, (AcceptedTask("north.a", 10, 1_000),))
    made = agent("south", stepped(100, 5_000), booked(), booked(ON))
    made.owns("south.x", 10)
    made.recorded(started(first), 0)
    made.recorded(
        Started(
            "south-east", "south-east:7/north.a", "south", 5, "north.a", on, signature(on, "east")
        ),
        0,
    )
    assert {name: holding.place for name, holding in made.holdings.tasks.items()} == {
        "south.x": TaskPlace.HERE,
        "north.a": TaskPlace.AWAY,
    }
    assert made.recorded(Ended("north-south", NAME, "north", 9, EndReason.RECALLED), 1) == [
        Ended("south-east", "south-east:7/north.a", "south", 1, EndReason.RECALLED)
    ]
    buyer = agent("north", stepped(100), booked(), a=10)
    buyer.recorded(started(first), 0)
    assert place(buyer) is TaskPlace.AWAY
    assert buyer.recorded(Ended("north-south", NAME, "north", 9, EndReason.RECALLED), 1) == []
    assert place(buyer) is TaskPlace.HERE


def test_after_a_crash_offers_are_newer_than_those_of_the_ledger() -> None:
    made = agent("south", stepped(100), booked())
    made.recorded(started(answer(50)), 0)
    made.offered(
        TaskOffer("north-south", 1, "north", 49, 1_000, (replace(TASK, name="north.b"),)), 0
    )
    [reply] = made.tick(200)
    assert isinstance(reply, OfferAnswer)
    assert reply.reason == "an older offer"


def test_fa3_after_a_crash_an_offer_that_was_withdrawn_is_old_for_its_seller_alone() -> None:
    """The ledger has the end of its movement already: no second one would be heard of. Of a
    number that a seller made up a buyer takes no notice.
    """
    made = agent("south", stepped(100), booked())
    made.recorded(Withdrawn("north-south", NAME, "south", 5), 5)
    made.offered(TaskOffer("north-south", 1, "north", 1, 1_000, (TASK,)), 10)
    [reply] = made.tick(300)
    assert isinstance(reply, OfferAnswer)
    assert (reply.reason, made.holdings.tasks) == ("an older offer", {})
    buyer = agent("north", stepped(100, 500, 1_500), booked(), a=10, b=10, c=10)
    buyer.recorded(Withdrawn("north-south", "north-south:99999/north.a", "south", 5), 5)
    [offer] = buyer.tick(1_000)
    assert isinstance(offer, TaskOffer)
    assert offer.number == 1_000


def test_entries_of_what_is_not_known_change_nothing() -> None:
    made = agent("south", stepped(100), booked(), booked(ON))
    assert made.recorded(started(answer(), contract_id="unknown"), 0) == []
    assert made.recorded(Withdrawn("north-south", NAME, "north", 0), 0) == []
    assert made.recorded(Ended("unknown", NAME, "north", 0, EndReason.RECALLED), 0) == []
    assert made.holdings.tasks == {}
    made.measured("unknown", 5)


def test_a_movement_of_a_task_that_is_not_here_is_over_at_once() -> None:
    """The task went home before its sale was known: after a crash, say."""
    made = agent("north", stepped(100), booked())
    assert made.recorded(started(answer()), 4) == [
        Ended("north-south", NAME, "north", 4, EndReason.RECALLED)
    ]


def test_a_start_of_what_is_here_already_changes_nothing() -> None:
    made = agent("south", stepped(100), booked())
    made.owns("north.a", 10)
    assert made.recorded(started(answer()), 0) == []
    assert place(made) is TaskPlace.HERE


def test_the_loads_that_are_seen_follow_the_measurements() -> None:
    made = host()
    made.measured("north.a", 110)
    assert made.holdings.level() == 40


def test_room_makes_an_agent_try_again() -> None:
    made = agent("north", stepped(5_000), booked(), a=10)
    made.tick(0)
    made.tick(1_000)
    assert made.tick(1_100) == []
    made.room(1_100)
    assert len(made.tick(1_100)) == 1


def test_what_is_not_traded_is_load_where_it_runs() -> None:
    made = agent("north", stepped(1, 10), a=10, b=10)
    assert made.reserves("north.a")
    assert made.reserves("north.a"), "it is not traded any more"
    made.holdings.tasks["north.b"].place = TaskPlace.OFFERED
    assert not made.reserves("north.b")
    assert made.holdings.level() == 10
    made.runs_besides("north.a", 7)
    standing = made._standing
    assert (made.holdings.level(), standing.sure(), standing.most()) == (17, 17, 17)
    assert made.costs_besides(["north.a", "north.c"]) == (standing.cost, 10)
    made.runs_besides("north.a", 0)
    assert made.holdings.level() == 10
    made.owns("north.a", 3)
    assert made.holdings.level() == 13


def test_what_runs_under_a_contract_that_is_left_alone_comes_home_when_it_ends() -> None:
    made, _ = sold_and_started()
    made.leaves_alone(booked(ON))
    assert made.tick(13_000) == []
    assert place(made) is TaskPlace.AWAY
    made.leaves_alone(booked(ON, ContractState.ENDING))
    assert [type(each) for each in made.tick(14_000)] == [BringHome]
    unknown = agent("south", stepped(100))
    unknown.leaves_alone(booked())
    assert not unknown._standing.partners


def test_a_task_that_comes_home_since_its_contract_ends_says_so() -> None:
    made, name = sold_and_started()
    made.knows(booked(ON, ContractState.ENDING))
    assert [type(each) for each in made.tick(13_000)] == [BringHome]
    [entry] = made.ready(name, 13_500)
    assert isinstance(entry, Ended)
    assert entry.why is EndReason.CONTRACT_ENDS
