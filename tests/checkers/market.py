"""Judges of a market: who runs what, and who is paid what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.metering import overlap_ms
from anabranch.protocol.federation.movements import MovementState
from experiments.market.exchange import RUNS, Exchange


def runners(made: Exchange) -> Iterator[str]:
    """When all is read and nothing is on its way, each task has one runner, on whom all
    agree; and it had one all the time.
    """
    yield from made.excess
    for task in made.tasks:
        agent = made.agents[made.runner(task)].participant
        holders = [
            name
            for name, each in made.agents.items()
            if task in each.holdings.tasks and each.holdings.tasks[task].place in RUNS
        ]
        copies = [name for name, each in made.copies.items() if task in each]
        if holders != [agent] or copies != [agent]:
            yield f"{task} is to run at {agent}; agents say {holders}, and it runs at {copies}"


def waits(made: Exchange, longest_ms: int) -> Iterator[str]:
    """Nothing is promised, offered or on its way for longer than any wait of the contracts,
    where somebody lives.
    """
    for name, agent in made.agents.items():
        for task in agent.holdings.at(
            TaskPlace.PROMISED, TaskPlace.OFFERED, TaskPlace.LEAVING, TaskPlace.COMING
        ):
            if made.is_up(name) and made.now_ms - task.since_ms > longest_ms:
                yield f"{task.name} is {task.place.value} at {name} since {task.since_ms}"


def calm(made: Exchange) -> Iterator[str]:
    """Under static load nobody takes what it would rather not have: nothing is returned,
    recalled, or moved on within its hold.
    """
    for name, agent in made.agents.items():
        if agent.counters.returns or agent.counters.recalls:
            yield (
                f"{name} returned {agent.counters.returns} and recalled {agent.counters.recalls}"
                " tasks"
            )


def payments(made: Exchange) -> Iterator[str]:
    """Balances are zero in sum; each settled period is what ran, at its price, counted from
    the movements and the true loads.
    """
    for name, ledger in made.ledgers.items():
        if sum(ledger.balances().values()):
            yield f"{name}: balances {ledger.balances()}"
        clauses = made.contracts[name].audit
        last_ms = (ledger.settled + 1) * clauses.settle_ms
        owed = 0
        for movement in ledger.movements:
            if movement.state is MovementState.VOID:
                continue
            ended_ms = movement.ended_ms if movement.state is MovementState.OVER else None
            for slot in range(last_ms // clauses.meter_ms):
                ran_ms = overlap_ms(slot, clauses.meter_ms, movement.started_ms, ended_ms)
                owed += (
                    movement.price
                    * made.tasks[movement.task].units(slot * clauses.meter_ms)
                    * ran_ms
                )
        paid = sum(each.amount_nano for each in ledger.postings if each.reason.startswith("period"))
        if paid != owed:
            yield f"{name}: {paid} paid, {owed} owed"


def holds(starts: Sequence[tuple[int, str]], min_hold_ms: int) -> Iterator[str]:
    """Between two movements of a task lies at least the minimum hold."""
    last: dict[str, int] = {}
    for at_ms, task in starts:
        if task in last and at_ms - last[task] < min_hold_ms:
            yield f"{task} moved at {last[task]} and at {at_ms}"
        last[task] = at_ms
