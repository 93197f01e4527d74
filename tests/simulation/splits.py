"""Seeds in which shards are split: runs and judges them.

::

    python -m simulation.explore --splits --seeds 300 [--first 0] [--show]
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from simulation.split_evidence import judge
from simulation.split_world import SplitWorld, draw


def once(seed: int) -> tuple[list[str], Exception | None, SplitWorld]:
    """Run a seed. Return what is wrong with it, the error that ended it early, and the world."""
    world = SplitWorld(draw(seed))
    try:
        world.run()
    except Exception as error:  # noqa: BLE001 - whatever ends a run is what is wrong with it
        return [f"run: {type(error).__name__}: {error}"], error, world
    return judge(world), None, world


def explore(seeds: Iterable[int], *, show: bool = False) -> tuple[list[int], Counter[str]]:
    """Run ``seeds``, every twentieth twice, up to the first that fails. Return those that failed,
    and the places that were reached. ``show``: print the history of each.
    """
    failed: list[int] = []
    probes: Counter[str] = Counter()
    begun, count = time.perf_counter(), 0
    for seed in seeds:
        wrong, _, world = once(seed)
        if seed % 20 == 0 and once(seed)[2].history.digest() != world.history.digest():
            wrong.append("not deterministic: a second run went another way")
        count += 1
        probes += world.history.probes
        if show:
            print(world.history.transcript())
        if wrong:
            failed.append(seed)
            print(f'seed {seed}: again: make simulation SEED={seed} ARGS="--splits"')
            print(*wrong[:5], world.options, sep="\n    ", flush=True)
            break
    for name, times in sorted(probes.items()):
        print(f"{times:9d}  {name}")
    print(f"{count} seeds in {time.perf_counter() - begun:.1f} s, {len(failed)} failed {failed}")
    return failed, probes
