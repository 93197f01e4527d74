"""The query of Medusa's Figure 1 at three participants, with a rush in one region and a partner
with room: ``python -m examples.market.demo``.

Everything is real: a broker, Redis and Spark for each of three pipelines, and a node of south's for
north's stage, started by ``anabranch up`` as a person would. North and south sign a contract; then
north has a rush. Exit code 0: north's agent sold its stage and took it back, the corrected tolls
and dispatches are those of the oracle, each once, what was paid is within the contract's bound,
both sides gained by it, and all balances together are zero.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.client import corrected
from anabranch.federation.tables import ledgers_of, movements_of, read_book
from anabranch.pipeline.model import Federation
from anabranch.protocol.federation.costs import QueueCost
from demo.progress import Shown
from examples.federation.demo import CARS, FIRST_SEGMENT, SEGMENTS, Story, Traffic
from examples.market import oracle
from examples.market.oracle import MINUTE_MS, Row, Sighting

_FOLDER: Final = Path(__file__).parent
_ANABRANCH: Final = Path(sys.executable).with_name("anabranch")
_CALM, _RUSH = 1, 8
"""Number of north's sightings at a time: about 50 and 400 per second."""
_READY_S: Final = 300
_MOVES_S: Final = 240
"""Timeout for a movement, in seconds: it takes seconds, but a cold Spark on a busy machine
is slow.
"""
_PRICES: Final = (6, 20)
_CAPACITY: Final = {"north": 1_250, "south": 1_500}
_OTHER_STAGES: Final = 2
"""Number of a region's stages that do not move; each reads all sightings, as the one that does."""
_SOUTHS_OWN: Final = 150
"""Rows per second that south's own stages read, together."""
_TRUCKS, _TOW_TRUCK_PART, _STANDING_PART = 2, 0.01, 0.02
"""Number of each region's tow trucks; parts of the sightings that are of one, and of a car that
stands.
"""
_GUEST: Final = "south-for-north"
TERMS: Final = _FOLDER / "rush" / "terms.yaml"


class Market:
    """Starter of the participants, and reader of their book."""

    def __init__(self, folder: Path, shown: Shown) -> None:
        self._folder = folder
        self.shown = shown
        self._begun_s = time.monotonic()
        self._up: dict[str, str] = {}
        """Pipeline file's name of each running state directory."""
        self._kafka = ""
        self._federation = Federation(name="tolls", participant="north")

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.shown.print(f"{time.monotonic() - self._begun_s:6.1f} s  {text}")

    def billing(self) -> str:
        """Start billing, which has the broker. Return the broker's address."""
        self._start("billing", "billing")
        rows = json.loads(self.run("status", "billing", "--json", *self._state("billing")))
        self._kafka = next(str(row["address"]) for row in rows if row["service"] == "kafka")
        return self._kafka

    def sign(self) -> None:
        """Create keys, name south as a signer of north's stream of speeds, whose stage it may run,
        and create a contract that both regions sign.
        """
        now = datetime.now(UTC)
        terms = self._folder / "terms.yaml"
        begins, ends = now - timedelta(hours=1), now + timedelta(days=1)
        valid = f"valid: {{from: {begins:%Y-%m-%dT%H:%M:%SZ}, to: {ends:%Y-%m-%dT%H:%M:%SZ}}}"
        terms.write_text(re.sub(r"(?m)^valid: .*$", valid, TERMS.read_text(encoding="utf-8")))
        for name in _CAPACITY:
            self.run("keys", name, "new", str(self._key(name)))
            self.run("keys", name, "publish", "--kafka", self._kafka)
        self.run("keys", "north", "signers", "--kafka", self._kafka)
        self.run("contracts", "north", "propose", str(terms), "--kafka", self._kafka)
        self.run("contracts", "south", "sign", "north-south", "--kafka", self._kafka)

    def regions(self) -> None:
        """Start both regions, and south's node for north's stage, side by side."""
        for name in _CAPACITY:
            self.run("topics", name, "--create", "--kafka", self._kafka)
        only = ("--only", "processing/south.0")
        threads = [
            threading.Thread(target=self._start, args=(name, name)) for name in _CAPACITY
        ] + [threading.Thread(target=self._start, args=("north", _GUEST, *only))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(self._up) != len(_CAPACITY) + 2:
            raise RuntimeError("not all of them are up")

    def _start(self, name: str, directory: str, *more: str) -> None:
        where = ("--kafka", self._kafka) if self._kafka else ()
        signs_as = "south" if directory == _GUEST else name
        self.run("up", name, "-d", *self._state(directory), *where, *more, signs_as=signs_as)
        self._up[directory] = name

    def close(self) -> None:
        """Stop all running participants, billing, which has the broker, last."""
        for directory in sorted(self._up, key=lambda each: each == "billing"):
            self.run("down", self._up[directory], *self._state(directory))
        self._up.clear()

    def movements(self) -> list[dict[str, Any]]:
        """Return the movements, as ``anabranch market --all --json`` shows them."""
        with closing(read_book(KafkaEventLog(self._kafka), self._federation)) as reader:
            return movements_of(reader)

    def ledger(self) -> dict[str, Any]:
        """Return the ledgers, as ``anabranch ledger --json`` shows them."""
        with closing(read_book(KafkaEventLog(self._kafka), self._federation)) as reader:
            return ledgers_of(reader)

    def log_lines(self, region: str) -> list[dict[str, Any]]:
        """Return the log of a region's agent."""
        path = self._folder / region / "logs" / f"agent-{region}.log"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    def _state(self, directory: str) -> tuple[str, str]:
        return "--state-dir", str(self._folder / directory)

    def _key(self, name: str) -> Path:
        return self._folder / f"{name}.key"

    def run(self, what: str, name: str, *arguments: str, signs_as: str = "") -> str:
        """Run a participant's command. Return what it printed."""
        verbs = arguments[:1] if what in ("keys", "contracts") else ()
        rest = arguments[len(verbs) :]
        command = [str(_ANABRANCH), what, *verbs, "-f", str(_FOLDER / f"{name}.yaml"), *rest]
        environment = dict(os.environ)
        key = self._key(signs_as or name)
        if key.exists():
            environment["ANABRANCH_SIGNING_KEY_FILE"] = str(key)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_READY_S, check=False, env=environment
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2_000:]}{done.stderr[-2_000:]}")
        return done.stdout


def draw(choice: random.Random, region: str) -> Sighting:
    """Draw a sighting of the present. The segments of odd numbers are jammed."""
    first, now_ms = FIRST_SEGMENT[region], time.time_ns() // 1_000_000
    segment = first + choice.randrange(SEGMENTS)
    speed = choice.randrange(10, 45) if segment % 2 else choice.randrange(50, 90)
    if choice.random() < _TOW_TRUCK_PART:
        truck = 10 * first + choice.randrange(_TRUCKS)
        return Sighting(region, truck, "tow_truck", segment, speed, now_ms)
    if choice.random() < _STANDING_PART:
        speed = 0
    return Sighting(region, choice.randrange(CARS), "car", segment, speed, now_ms)


class MessagePrinter:
    """Printer of the agents' messages, in a thread of its own, until ``end``."""

    def __init__(self, market: Market) -> None:
        self._market, self._lines_read = market, {"north": 0, "south": 0}
        self._ending = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        while not self._ending.wait(0.5):
            for region, seen in self._lines_read.items():
                lines = self._market.log_lines(region)
                self._lines_read[region] = len(lines)
                for line in lines[seen:]:
                    text = readable(region, line)
                    if text:
                        self._market.say(text)

    def end(self) -> None:
        """Stop printing."""
        self._ending.set()


def readable(region: str, line: dict[str, Any]) -> str:
    """Return a line of an agent's log as text for people; empty if it is not for them."""
    match line.get("event"):
        case "message_sent":
            return f"{region}: {line['what']}: {line['detail']}"
        case "moves":
            return f"{region}: its stage goes to node {line['to']}"
        case "recorded" if region == "north":
            return f"ledger: {line['movement']} has {line['what']}, says {line['by']}"
        case _:
            return ""


def waiting_micro(region: str, rows_per_s: int) -> int:
    """Return the cost of a load in a region by the region's cost function, in micro-units per
    second.
    """
    return QueueCost(_CAPACITY[region], 1_000)(rows_per_s)


def gains(row: dict[str, Any]) -> tuple[int, int]:
    """Return what a movement saves north, and what it earns south, in micro-units per second: the
    waiting at home less the payment, and the payment less the waiting that it causes at south.
    Their sum is what all participants together save. North's other stages have the same input.
    """
    units = row["units"]
    stays = _OTHER_STAGES * units
    paid = row["price_micro"] * units
    caused = waiting_micro("south", _SOUTHS_OWN + units) - waiting_micro("south", _SOUTHS_OWN)
    saved = waiting_micro("north", stays + units) - waiting_micro("north", stays)
    return saved - paid, paid - caused


def ended_well(movements: Sequence[dict[str, Any]]) -> bool:
    """Return whether each movement was recalled, except one that north took home because south's
    node was late or not heard: that happens on a busy machine, and loses nothing.
    """
    reasons = Counter(row["why"] for row in movements)
    return bool(movements) and reasons.total() == reasons["recalled"] + min(reasons["silent"], 1)


def run(market: Market) -> bool:
    """Run the story. Return whether all went as expected."""
    say, shown = market.say, market.shown
    kafka = market.billing()
    say("billing is up, alone: its stage waits for the regions")
    shown.now("signing a contract")
    market.sign()
    say("north and south have signed a contract: 6 to 20 micro-units per row and second")
    shown.now("starting north and south")
    market.regions()
    say("north and south are up, and a node of south's for north's stage, which has nothing to do")
    stories = [Story(kafka, say)] + [
        Story(kafka, say, f"{region}.dispatches.live", "dispatches", region)
        for region in FIRST_SEGMENT
    ]
    traffic = Traffic(kafka, draw)
    teller = MessagePrinter(market)
    for story in stories:
        story.begin()
    traffic.start()
    begun_ms = time.time() * 1_000
    shown.until(
        lambda: _stable_ms(stories) > begun_ms + 2 * MINUTE_MS,
        "results of the first minutes",
    )
    traffic.times["north"] = _RUSH
    say("rush in north: eight times the cars")
    shown.until(lambda: bool(running(market)), "north sells its stage", _MOVES_S)
    sold = running(market)[0]
    say(f"south runs {sold['task']}: {sold['units']} rows/s at {sold['price_micro']} micro-units")
    shown.until(
        lambda: bool(market.ledger()["contracts"][0]["postings"]),
        "a period is settled",
    )
    say(f"a first period is settled: {market.ledger()['balances_nano']} thousandths")
    traffic.times["north"] = _CALM
    say("the rush is over")
    shown.until(lambda: not running(market), "the stage comes home", _MOVES_S)
    say("north runs its stage again")
    shown.until(
        lambda: not market.ledger()["contracts"][0]["unsettled_nano"],
        "all is settled",
    )
    last_ms = round(time.time() * 1_000) // MINUTE_MS * MINUTE_MS
    shown.until(lambda: _stable_ms(stories) >= last_ms, "the minutes until now")
    shown.now("comparing with the oracle")
    for story in stories:
        story.end()
    teller.end()
    sent = [each for each in traffic.stop() if each.time_ms < last_ms]
    say(f"sightings {len(sent):,}")
    return all([judge_results(say, kafka, sent, last_ms), judge_market(market)])


def _stable_ms(stories: Sequence[Story]) -> int:
    """Return up to when all results are stable."""
    return min(story.stable_ms for story in stories)


def running(market: Market) -> list[dict[str, Any]]:
    """Movements that run."""
    return [row for row in market.movements() if row["to"] is None]


def judge_results(
    say: Callable[[str], None], kafka: str, sent: Sequence[Sighting], last_ms: int
) -> bool:
    """Compare tolls and dispatches until ``last_ms`` in the corrected topics with the oracle."""
    topics = [f"{region}.dispatches" for region in FIRST_SEGMENT]
    tolls = _found(kafka, ["tolls"], ("car", "segment", "toll"), last_ms)
    trucks = _found(kafka, topics, ("car", "truck", "segment"), last_ms)
    return all(
        [
            judge(say, "tolls", tolls, oracle.tolls(sent)),
            judge(say, "tow truck dispatches", trucks, oracle.dispatches(sent)),
        ]
    )


def _found(
    kafka: str, topics: Sequence[str], columns: tuple[str, str, str], last_ms: int
) -> Counter[Row]:
    """Return the rows of the topics up to ``last_ms``: event time in ms, then ``columns``."""
    found: Counter[Row] = Counter()
    first, second, third = columns
    for topic in topics:
        with corrected(kafka, topic, start="earliest", follow=False) as rows:
            for row in rows:
                at_ms = round(row.event_time.timestamp() * 1_000)
                if at_ms <= last_ms:
                    found[at_ms, row.value[first], row.value[second], row.value[third]] += 1
    return found


def judge(
    say: Callable[[str], None],
    what: str,
    found: Counter[Row],
    wanted: Counter[Row],
) -> bool:
    """Say how many rows were found and expected. Return whether all of them are right and there are
    any.
    """
    lost, more = (wanted - found).total(), (found - wanted).total()
    say(
        f"{what} {found.total():,} (expected {wanted.total():,}); missing {lost}, wrong or double"
        f" {more}"
    )
    return bool(wanted) and not lost and not more


def judge_market(market: Market) -> bool:
    """Say who ran what and who owes whom how much; whether it is as it should be."""
    movements, ledger = market.movements(), market.ledger()
    for row in movements:
        north, south = gains(row)
        market.say(
            f"{row['task']} ran at {row['moved_to']} from {row['from']} to {row['to']} at"
            f" {row['price_micro']} per row ({row['why']}): per second it saved north {north} and"
            f" brought south {south} micro-units"
        )
        if row["why"] == "silent":
            market.say("it was taken home since south was late or not heard; south pays for that")
    book = ledger["contracts"][0]
    market.say(
        f"balances {ledger['balances_nano']}, sum {ledger['sum_nano']}; disputes {book['disputes']}"
    )
    least, most = _PRICES
    is_paid = ledger["balances_nano"]["south"] > 0
    return (
        ended_well(movements)
        and all(least <= row["price_micro"] <= most for row in movements)
        and all(min(gains(row)) >= 0 < sum(gains(row)) for row in movements)
        and ledger["sum_nano"] == 0
        and (is_paid or any(row["why"] == "silent" for row in movements))
        and book["disputes"] == 0
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-market-") as folder,
        Shown(Console(), "starting billing, with the broker") as shown,
    ):
        market = Market(Path(folder), shown)
        try:
            is_right = run(market)
        finally:
            shown.now("stopping")
            market.close()
    market.say("as it should be" if is_right else "NOT as it should be")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
