"""Links: the one way of each service to the embedded broker in a deployment with fault drills, and
the cuts in them.

A service of ``up --drills`` gets the address of its own link. The proxy listens there and passes
everything on to a listener of the broker that exists for this link alone and advertises the link's
address, so the service never learns of another way.

All of it is files in ``<state directory>/drills``, which only their owner may read:

``links.json``       every link; written by ``up`` before the proxy starts.
``cuts/*.json``      one file per cut link; written by ``anabranch drill cut``, removed by ``heal``.
``applied.json``     the cuts that the proxy keeps now; written by the proxy.

Invariants:
    LK1 The files in ``cuts`` are the cuts that are wanted. Whoever restarts the proxy changes
        nothing in them; ``up`` begins without any.
    LK2 A file is replaced as a whole; each cut has its own, so two commands at the same time do not
        undo each other.
    LK3 ``applied.json`` names a cut only after no byte passes any more in its direction.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from anabranch.up.owned_server import write_whole

DIRECTORY_NAME: Final = "drills"
_LINKS: Final = "links.json"
_CUTS: Final = "cuts"
_APPLIED: Final = "applied.json"


class Direction(StrEnum):
    """Which way of a link a cut is for."""

    TO = "to"
    """Requests do not reach Kafka."""
    FROM = "from"
    """Answers do not reach the service: what it writes is stored, but it never hears of it."""
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Link:
    """``label`` is SERVICE/NAME; ``port`` is where the service connects, ``broker_port``
    where the broker listens for it.
    """

    label: str
    port: int
    broker_port: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What does not pass. ``reset``: connections are closed and new ones refused, instead of
    standing still.

    With a ``delay_ms`` it is no cut but a slow link: everything passes in the end, at most one read
    of the proxy per delay and direction.
    """

    direction: Direction = Direction.BOTH
    reset: bool = False
    delay_ms: int = 0

    @property
    def holds_to(self) -> bool:
        """Whether requests stay behind."""
        return self.direction is not Direction.FROM and not self.delay_ms

    @property
    def holds_from(self) -> bool:
        """Whether answers stay behind."""
        return self.direction is not Direction.TO and not self.delay_ms

    @property
    def delay_to_ms(self) -> int:
        """How much later requests pass."""
        return 0 if self.direction is Direction.FROM else self.delay_ms

    @property
    def delay_from_ms(self) -> int:
        """How much later answers pass."""
        return 0 if self.direction is Direction.TO else self.delay_ms

    def in_words(self) -> str:
        """For people."""
        if self.delay_ms:
            whose = {
                Direction.BOTH: "all",
                Direction.TO: "its requests",
                Direction.FROM: "Kafka's answers",
            }[self.direction]
            return f"slow link to Kafka: {whose} {self.delay_ms} ms late"
        what = {
            Direction.BOTH: "cut off from Kafka",
            Direction.TO: "its requests do not reach Kafka",
            Direction.FROM: "Kafka's answers do not reach it",
        }[self.direction]
        return f"{what}, connections reset" if self.reset else what


def directory_of(state_dir: Path) -> Path:
    """Where the links of a deployment are described."""
    return state_dir / DIRECTORY_NAME


def lay(folder: Path, links: Sequence[Link]) -> None:
    """Describe ``links`` anew, none of them cut."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / _CUTS).mkdir(parents=True, mode=0o700)
    write_whole(folder / _LINKS, json.dumps([asdict(link) for link in links], indent=1))


def read_links(folder: Path) -> list[Link]:
    """What ``lay`` described; empty where nothing is."""
    try:
        return [
            Link(**entry) for entry in json.loads((folder / _LINKS).read_text(encoding="utf-8"))
        ]
    except FileNotFoundError:
        return []


def want(folder: Path, label: str, cut: Cut | None) -> None:
    """Ask for a cut of the link ``label``, instead of the one that it has; None: for none."""
    path = folder / _CUTS / f"{label.replace('/', '-')}.json"
    if cut is None:
        path.unlink(missing_ok=True)
    else:
        write_whole(path, json.dumps({"label": label, **asdict(cut)}))


def wanted(folder: Path) -> dict[str, Cut]:
    """The requested cuts, by label."""
    found = {}
    with contextlib.suppress(FileNotFoundError):  # no links at all
        for name in sorted(os.listdir(folder / _CUTS)):  # noqa: PTH208 - the proxy asks this 50 times a second
            if name.endswith(".json"):
                with contextlib.suppress(FileNotFoundError):  # healed this moment
                    content = json.loads((folder / _CUTS / name).read_text(encoding="utf-8"))
                    found[content["label"]] = _cut_of(content)
    return found


def write_applied(folder: Path, cuts: Mapping[str, Cut]) -> None:
    """Say which cuts are kept now."""
    write_whole(folder / _APPLIED, json.dumps({label: asdict(cut) for label, cut in cuts.items()}))


def applied(folder: Path) -> dict[str, Cut]:
    """The cuts that the proxy keeps, by label; none where there is no proxy."""
    try:
        content = json.loads((folder / _APPLIED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {label: _cut_of(cut) for label, cut in content.items()}


def _cut_of(content: Mapping[str, object]) -> Cut:
    return Cut(
        Direction(str(content["direction"])), bool(content["reset"]), int(str(content["delay_ms"]))
    )
