"""Many seeds: runs them, judges them, shrinks the faults of the first that fails.

::

    python -m simulation.explore --seeds 300 [--first 0] [--twice] [--jobs 2]
    python -m simulation.explore --first 17 --seeds 1 --show     # one seed, with its history
    python -m simulation.explore --seeds 500 --scenario chain    # the first 500 seeds of a scenario
    python -m simulation.explore --seeds 300 --federation        # seeds of several participants
    python -m simulation.explore --seeds 300 --splits            # seeds in which shards are split
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anabranch
from simulation import drawing, evidence, market, market_evidence, scenarios, splits
from simulation.faults import Fault
from simulation.history import History
from simulation.market import MarketOptions
from simulation.options import Options
from simulation.participants import FederatedWorld
from simulation.probes import EXPECTED, SEEDS_FOR_ROWS, unreached
from simulation.world import Run, World

# every reader tells of every rejected record: over a thousand seeds that is no news
logging.getLogger("anabranch").addHandler(logging.NullHandler())

_FIRST_BELOW: Final = 1_000_000
SEEDS_APART: Final = 10_000
"""Between the first seeds of two texts of the services: so many are each one's own."""
TWICE_EVERY: Final = 20
"""Every so many-th seed is run twice: both histories must be equal."""


def first_seed(root: Path | None = None) -> int:
    """Return the first seed, which follows from the text of the services, so that every change of
    them is tried on seeds of its own, the same ones each time. ``root``: the folder whose ``*.py``
    count; None: that of the package.
    """
    root = root or Path(str(anabranch.__file__)).parent
    total = hashlib.blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py"), key=lambda each: each.relative_to(root).as_posix()):
        text = path.read_bytes()
        total.update(f"{path.relative_to(root).as_posix()} {len(text)}\n".encode() + text)
    return int.from_bytes(total.digest(), "big") % _FIRST_BELOW * SEEDS_APART


@dataclass
class Outcome:
    """Outcome of one seed."""

    seed: int
    options: Options
    wrong: list[str]
    faults: list[Fault]
    history: History
    steps: int
    virtual_ms: int
    error: Exception | None = None
    """Error that ended the run early."""

    @property
    def probes(self) -> Counter[str]:
        """Number of times that each probe was reached, by its name."""
        return self.history.probes

    @property
    def digest(self) -> str:
        """Hash of everything that happened. Few ask for it, and it takes long to compute."""
        return self.history.digest()


def once(seed: int, faults: list[Fault] | None = None, *, chosen: Options | None = None) -> Outcome:
    """Run a seed and judge it. ``faults``, ``chosen``: instead of the seed's own."""
    chosen = chosen or drawing.draw(seed)
    world, judge = _made(chosen, faults)
    ended_by: Exception | None = None
    try:
        run = world.run()
    except Exception as error:  # noqa: BLE001 - whatever ends a run is what is wrong with it
        ended_by = error
        wrong = [*world.unexpected, f"run: {type(error).__name__}: {error}"]
    else:
        wrong = judge(run)
    return Outcome(
        seed,
        chosen,
        wrong,
        world.faults,
        world.history,
        world.scheduler.steps,
        world.scheduler.now_ms,
        ended_by,
    )


def _made(chosen: Options, faults: list[Fault] | None) -> tuple[World, Callable[[Run], list[str]]]:
    """Return the world that runs a seed, and the judge of the run."""
    if isinstance(chosen, MarketOptions):
        federated = FederatedWorld(chosen, faults)
        return federated, partial(market_evidence.judge, federated)
    return World(chosen, faults), evidence.judge


def shrink(
    seed: int, faults: list[Fault], tries_max: int = 60, *, chosen: Options | None = None
) -> list[Fault]:
    """Fewer faults with which the seed still fails: each is left out once, again and again
    until none can be. ``chosen``: as of ``once``.
    """
    tries, number = 0, 0
    while number < len(faults) and tries < tries_max:
        fewer = faults[:number] + faults[number + 1 :]
        tries += 1
        if once(seed, fewer, chosen=chosen).wrong:
            faults, number = fewer, 0
        else:
            number += 1
    return faults


@dataclass
class Total:
    """Totals of many seeds."""

    seeds: int = 0
    twice: int = 0
    """Number of seeds that were run a second time, with the same history."""
    failed: list[int] = field(default_factory=list)
    probes: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    virtual_ms: int = 0


def explore(
    seeds: Iterable[int],
    *,
    twice_every: int = TWICE_EVERY,
    stop: bool = True,
    quiet: bool = False,
    draw: Callable[[int], Options] = drawing.draw,
) -> Total:
    """Run ``seeds``; tells of the first failure what is needed to see it again.
    ``twice_every``: 1: each is run twice; 0: none. ``draw``: the options of a seed.
    """
    total = Total()
    for seed in seeds:
        outcome = once(seed, chosen=draw(seed))
        if twice_every and seed % twice_every == 0 and not outcome.wrong:
            total.twice += 1
            if once(seed, chosen=draw(seed)).digest != outcome.digest:
                outcome.wrong.append("not deterministic: a second run went another way")
        total.seeds += 1
        total.probes += outcome.probes
        total.steps += outcome.steps
        total.virtual_ms += outcome.virtual_ms
        if outcome.wrong:
            total.failed.append(seed)
            if not quiet:
                report(outcome)
            if stop:
                break
    return total


def report(outcome: Outcome, *, shrunk: bool = True) -> None:
    """Print a failure: what is wrong, with which options, with which faults."""
    print(
        f"seed {outcome.seed}: {len(outcome.wrong)} violations; again: make simulation"
        f" SEED={outcome.seed}"
        + ' ARGS="--federation"'
        * isinstance(outcome.options, MarketOptions)
    )
    for line in outcome.wrong[:5]:
        print(f"    {line[:600]}")
    drawn = vars(outcome.options)
    print(f"  options {', '.join(f'{name}={value!r}' for name, value in drawn.items())}")
    faults = outcome.faults
    if shrunk:
        faults = shrink(outcome.seed, faults, chosen=outcome.options)
    print(
        f"  faults, {len(faults)} of {len(outcome.faults)}: {[tuple(fault) for fault in faults]}",
        flush=True,
    )


def _worker(arguments: tuple[list[int], int, int, bool, bool]) -> Total:
    seeds, job, twice_every, stop, is_federation = arguments
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(
        0, {processors[job % len(processors)]}
    )  # handing over within one core costs a third
    draw = market.draw if is_federation else drawing.draw
    return explore(seeds, twice_every=twice_every, stop=stop, draw=draw)


def main() -> int:
    """Run the command line. Return 1 if a seed failed, or if so many seeds missed a place that they
    should have reached.
    """
    parser = argparse.ArgumentParser(prog="simulation")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument(
        "--first",
        type=int,
        help="the first seed; not given: it follows from the text of the services",
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--twice",
        action="store_true",
        help=f"run every seed twice and compare the histories, not only every {TWICE_EVERY}th",
    )
    parser.add_argument("--all", action="store_true", help="go on after a failure")
    parser.add_argument("--show", action="store_true", help="print the history of each seed")
    parser.add_argument(
        "--scenario", choices=sorted(scenarios.CHANCES), help="only seeds of this scenario"
    )
    parser.add_argument(
        "--federation", action="store_true", help="seeds of several participants, one of whom sells"
    )
    parser.add_argument(
        "--splits", action="store_true", help="seeds in which shards of a stage are split"
    )
    given = parser.parse_args()
    begun = time.perf_counter()
    first = first_seed() if given.first is None else given.first
    print(f"seeds from {first} on: make simulation FIRST={first} SEEDS={given.seeds}")
    if given.splits:
        failed, _ = splits.explore(range(first, first + given.seeds), show=given.show)
        return 1 if failed else 0
    candidates = (
        seed for seed in itertools.count(first) if given.scenario in (None, scenarios.of(seed))
    )
    seeds = list(itertools.islice(candidates, given.seeds))
    if given.show:
        for seed in seeds:
            outcome = once(seed, chosen=market.draw(seed) if given.federation else None)
            print(outcome.history.transcript(), *outcome.wrong, sep="\n")
        return 0
    each = -(-len(seeds) // given.jobs)
    pieces = [
        (
            seeds[job * each : (job + 1) * each],
            job,
            1 if given.twice else TWICE_EVERY,
            not given.all,
            given.federation,
        )
        for job in range(given.jobs)
    ]
    if given.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
            parts = pool.map(_worker, pieces)
    else:
        parts = [_worker(piece) for piece in pieces]
    is_whole = given.scenario is None and not given.federation
    return _tell(parts, time.perf_counter() - begun, is_whole=is_whole)


def _tell(parts: list[Total], seconds: float, *, is_whole: bool) -> int:
    """Print what came of it; the exit status. ``is_whole``: seeds of every kind, so all
    places can be reached.
    """
    probes: Counter[str] = Counter()
    for part in parts:
        probes += part.probes
    for name, count in sorted(probes.items()):
        print(f"{count:9d}  {name}")
    seeds, failed = (
        sum(part.seeds for part in parts),
        [seed for part in parts for seed in part.failed],
    )
    steps, virtual_s = (
        sum(part.steps for part in parts),
        sum(part.virtual_ms for part in parts) / 1_000,
    )
    missed = unreached(probes, seeds) if is_whole else []
    if seeds >= SEEDS_FOR_ROWS and is_whole:
        print(
            f"not reached: {', '.join(name for name in EXPECTED if not probes[name]) or 'nothing'}"
        )
        print(f"  of these should have been, in {seeds} seeds: {', '.join(missed) or 'none'}")
    print(
        f"{seeds} seeds in {seconds:.1f} s ({seconds / max(1, seeds):.3f} s each), {steps} steps,"
        f" {virtual_s:.0f} s of virtual time"
    )
    print(
        f"{sum(part.twice for part in parts)} were run twice, each with the same history both times"
    )
    print(
        f"{len(failed)} failed {failed[:20]}; with none failed at most {3 / max(1, seeds):.2e} of"
        " such seeds fail (95 %)"
    )
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
