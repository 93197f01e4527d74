"""``make moves ARGS="--moves 50 --seed 1"``: exit code 0 only when nothing was lost, duplicated,
wrong, or later than its bound.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from anabranch.protocol.errors import Unavailable
from chaos.judgement import USUAL_LIVE_MS_MAX
from demo.deployment import DeploymentError
from moves.judgement import Bound, Struck
from moves.run import Moved, Run, Stuck, Verdict, title
from moves.schedule import Kill, Party, draw

_ROW: Final = "{:>4}  {:<8} {:<24} {:<15} {:>6}  {:<28} {:>6} {:>8}  {}"
_HEAD: Final = _ROW.format(
    "move", "to", "killed", "after", "s", "ended", "s", "latest s", "bound: max_delay, and"
)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="moves",
        description="A stage moves between two owners under load; in each movement one is killed.",
    )
    parser.add_argument("--moves", type=int, default=10, help="so many (default 10)")
    parser.add_argument(
        "--seed", type=int, default=1, help="who is killed when, and the traffic (default 1)"
    )
    parser.add_argument(
        "--parties",
        type=lambda text: tuple(Party(name) for name in text.split(",")),
        default=tuple(Party),
        help=f"only these, with commas: {','.join(Party)}",
    )
    parser.add_argument(
        "--folder", type=Path, help="of state and logs (default: one that goes with a clean run)"
    )
    parser.add_argument("--keep", action="store_true", help="keep them after a clean run, too")
    parser.add_argument("--show", action="store_true", help="only show what would happen")
    return parser.parse_args(arguments)


def row(moved: Moved) -> str:
    """Return a movement as a row of the table."""
    return _row_of(
        moved.kill,
        title(moved),
        moved.ended,
        f"{(moved.ended_ms - moved.began_ms) / 1_000:.1f}",
        f"{moved.latest_ms / 1_000:.2f}",
        "-" if moved.bound is Bound.USUAL else moved.bound.value,
    )


def _row_of(kill: Kill, *more: str) -> str:
    to, *rest = more or ("", "", "", "", "")
    return _ROW.format(
        kill.number, to, kill.party, kill.moment, f"{kill.delay_ms / 1_000:.1f}", *rest
    )


def totals(verdict: Verdict, planned: int, seconds: float) -> list[str]:
    """Return what was counted and compared."""
    bounds, found = verdict.bounds, verdict.compared
    again = ", ".join(f"{name} {count}" for name, count in sorted(verdict.restarts.items()))
    differs = (
        f"missing {found.missing}, duplicated {found.duplicated}, wrong {found.wrong}, out of order"
        f" {found.out_of_order}; later than their bound {verdict.late_total}"
    )
    parts = (
        f"usual {bounds.usual_ms / 1_000:.2f} s (at most {USUAL_LIVE_MS_MAX / 1_000:g}) + max_delay"
        f" {bounds.max_delay_ms / 1_000:.2f} s"
    )
    after_kills = ", ".join(
        f"{Struck(0, bound).back_ms / 1_000:g} s after a {bound.value}"
        for bound in (Bound.NODE, Bound.BROKER)
    )
    return [
        f"movements {len(verdict.moved)} of {planned}, each with a kill, in {seconds:.0f} s",
        f"sightings {verdict.sightings:,}; results {found.delivered:,} of {found.expected:,}:",
        f"  {differs}",
        f"bound of a result: {bounds.plain_ms / 1_000:.2f} s after its window, {parts}; and of one",
        f"  that a kill holds up: as much, {after_kills}",
        verdict.book,
        f"started again: {again or 'none'}",
        f"{verdict.clean_moves} of {planned} movements were clean",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the movements and return the exit code."""
    options = parse(arguments)
    kills = draw(options.seed, options.moves, options.parties)
    if options.show:
        print("\n".join(_row_of(kill) for kill in kills))
        return 0
    logging.disable(logging.ERROR)  # of clients, while Kafka is away
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = options.folder or Path(tempfile.mkdtemp(prefix="anabranch-moves-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        print(f"{folder} is not empty: name another --folder")
        return 1
    begun_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun_s:6.1f} s  {text}", flush=True)

    say(f"seed {options.seed}, {options.moves} movements; in {folder}")
    run = Run(folder, kills, options.seed, say, lambda moved: print(row(moved), flush=True))
    print(_HEAD)
    try:
        verdict = run.run()
    except (DeploymentError, Unavailable, KafkaException, Stuck) as error:
        print(f"broke off: {error}\nstate and logs: {folder}")
        return 1
    print("\n".join(totals(verdict, options.moves, time.monotonic() - begun_s)))
    for text in verdict.wrong:
        print(f"WRONG: {text}")
    for text in verdict.late:
        print(f"LATE: {text}")
    if verdict.stalled.stalled:
        print(f"NOT JUDGED: of the late results, {verdict.stalled}")
    if verdict.too_slow:
        print(f"NOT JUDGED: delays: {verdict.too_slow}")
    if verdict.is_clean and not options.keep:
        shutil.rmtree(folder)
    elif not verdict.is_clean:
        print(
            f"not clean; the same plan again with --seed {options.seed}; state and logs: {folder}"
        )
    return 0 if verdict.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
