"""``python -m experiments.market.nodes``: three owners on real nodes, before their contracts and
with them: the load of each over time, and what was settled.

North has a rush, and may sell its stage to south; south has a rush of its own meanwhile, and may
sell it on to west. The same happens twice in one run: first nobody has signed anything, then the
contracts are signed. Loads are those that the agents measure and decide by.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.local import state_file
from anabranch.protocol.federation.costs import QueueCost
from experiments.pages import table, write_page
from harness.service_processes import detail_of
from moves.deployment import NORTH, SOUTH
from moves.three_owners import CALM, CAPACITY, LOAD_OF_OWN, RUSH, WEST, ThreeOwners

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PAGE: Final = Path("docs/experiments/market.md")
OWNERS: Final = (NORTH, SOUTH, WEST)
RUSHES_S: Final = {NORTH: (20, 140), SOUTH: (60, 110)}
"""Start and end of each owner's rush, in seconds from the beginning of either part."""
LASTS_S: Final = 200
LOOK_S: Final = 1
SHOWN_EVERY_S: Final = 10
SCALE_MICRO: Final = 1_000
"""Cost of a row that waits for a second, in micro-units, as the pipeline files have it."""
NANO_PER_WAITING_ROW: Final = 1_000 * SCALE_MICRO


@dataclass(frozen=True)
class Sample:
    """Loads of all owners at one moment, in parts of their capacities."""

    at_s: int
    loads: Mapping[str, float]
    node: str
    """Node that runs north's stage."""


def is_rush(owner: str, at_s: int) -> bool:
    """Return whether ``owner`` has its rush ``at_s`` seconds after a part began."""
    begins_s, ends_s = RUSHES_S[owner]
    return begins_s <= at_s < ends_s


def waiting(samples: Sequence[Sample], owner: str) -> float:
    """Return what ``owner`` spent on waiting, in rows that wait for a second: the cost of its load
    by which its agent decides.
    """
    cost = QueueCost(CAPACITY[owner], SCALE_MICRO)
    micro = sum(cost(round(each.loads[owner] * CAPACITY[owner])) * LOOK_S for each in samples)
    return micro / SCALE_MICRO


def nodes_table(
    before: Sequence[Sample], after: Sequence[Sample], balances: Mapping[str, int]
) -> str:
    """Return the tables of loads, in per cent, and of what each owner spent, was paid and gained.
    ``balances``: payments to each owner less those by it, in nano-units.
    """
    rows = [
        [str(one.at_s)]
        + [f"{100 * each.loads[owner]:.0f}" for owner in OWNERS for each in (one, other)]
        + [other.node]
        for one, other in zip(before, after, strict=False)
        if one.at_s % SHOWN_EVERY_S == 0
    ]
    sums = []
    for owner in OWNERS:
        alone, within = waiting(before, owner), waiting(after, owner)
        settled = balances.get(owner, 0) / NANO_PER_WAITING_ROW
        figures = (alone, within, settled, settled + alone - within)
        sums.append([owner, *(f"{value:.2f}" for value in figures)])
    kinds = [f"{owner}: {kind}" for owner in OWNERS for kind in ("alone", "contracts")]
    loads = table(["s", *kinds, "north's stage runs on"], rows)
    head = ["owner", "waiting: alone", "waiting: contracts", "settled", "gain"]
    return f"{loads}\n\n{table(head, sums)}"


def load_of(folder: Path, owner: str) -> float:
    """Return the load that the agent of ``owner`` measures, as part of its capacity; 0 while it
    does not answer.
    """
    state = state_file.read(folder / owner)
    rows = () if state is None else state.processes
    for row in rows:
        if row.service == "agent" and row.pid is not None:
            detail = detail_of(folder / owner, row.service, row.name, row.pid)
            if detail:
                return float(detail["load_units"]) / float(detail["capacity_units"])
    return 0.0


def part(world: ThreeOwners, folder: Path, say: Callable[[str], None]) -> list[Sample]:
    """Run both rushes, and return the loads of each second."""
    begun_s, samples, pause = time.monotonic(), list[Sample](), threading.Event()
    for at_s in range(0, LASTS_S + LOOK_S, LOOK_S):
        world.traffic.at_once = RUSH if is_rush(NORTH, at_s) else CALM
        world.own.at_once = LOAD_OF_OWN if is_rush(SOUTH, at_s) else CALM
        pause.wait(max(0.0, begun_s + at_s - time.monotonic()))
        loads = {owner: load_of(folder, owner) for owner in OWNERS}
        samples.append(Sample(at_s, loads, world.runs_on()))
        if at_s % SHOWN_EVERY_S == 0:
            shown = ", ".join(f"{owner} {100 * load:.0f} %" for owner, load in loads.items())
            say(f"{at_s:4} s  {shown}; north's stage runs on {samples[-1].node}")
    return samples


def run(folder: Path, say: Callable[[str], None]) -> str:
    """Run both parts, and return the block of the page.

    Raises:
        SystemExit: the results are not what they must be, or the sums are not zero together.
    """
    world = ThreeOwners(folder)
    try:
        world.until("north.0", {}, "north runs its stage")
        say("before the contracts")
        before = part(world, folder, say)
        world.owners.sign()
        say("the contracts are signed")
        after = part(world, folder, say)
        world.until("north.0", {}, "north has its stage back")
        sent, found = world.judged()
        movements, ledger = world.book()
    finally:
        world.close()
    balances = ledger["balances_nano"]
    if not found.is_equal() or ledger["sum_nano"]:
        raise SystemExit(f"WRONG: {found}; sums {balances}")
    say(f"{len(movements)} movements, {sent} sightings, {found.delivered} results, all right")
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    return (
        f"{day}: {len(movements)} movements; {found.delivered} results of {sent} sightings, each"
        f" once and right; the sums that were settled are {ledger['sum_nano']} together.\n\n"
        f"{nodes_table(before, after, balances)}"
    )


def main() -> int:
    """Run it, and write the block ``nodes`` of the page."""
    parser = argparse.ArgumentParser(prog="python -m experiments.market.nodes")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write to")
    parser.add_argument("--folder", type=Path, help="of state and logs (default: a new one)")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)  # of clients, while brokers start
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="anabranch-owners-"))
    folder.mkdir(parents=True, exist_ok=True)
    begun_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun_s:6.1f} s  {text}", flush=True)

    say(f"in {folder}")
    body = run(folder, say)
    print(f"\n{body}")
    write_page(arguments.page, {"nodes": body}, {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
