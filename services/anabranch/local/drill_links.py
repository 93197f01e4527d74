"""Links between services and the embedded broker in a deployment with fault drills, and their cuts.

A service of ``up --drills`` is given the address of its own link. The proxy listens there and
forwards everything to a listener of the broker that exists only for this link and advertises the
link's address. So the service never learns of another address.

Links and cuts are files in ``<state directory>/drills``, readable by their owner only:

``links.json``       all links; written by ``up`` before the proxy starts.
``cuts/*.json``      one file per cut link; written by ``anabranch drill cut``, removed by ``heal``.
``applied.json``     the cuts in effect; written by the proxy.

Invariants:
    LK1 The files in ``cuts`` are the requested cuts. A restart of the proxy does not change them;
        ``up`` begins without any.
    LK2 A file is replaced as a whole, and each cut has its own, so that two commands at the same
        time do not undo each other.
    LK3 ``applied.json`` names a cut only once no byte passes any more in its direction.
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

from anabranch.local.owned_server import write_whole

DIRECTORY_NAME: Final = "drills"
_LINKS: Final = "links.json"
_CUTS: Final = "cuts"
_APPLIED: Final = "applied.json"


class Direction(StrEnum):
    """Direction of a link's traffic that a cut stops."""

    TO = "to"
    """From the service to Kafka: requests do not arrive."""
    FROM = "from"
    """From Kafka to the service: records are stored, but their acknowledgements do not arrive."""
    BOTH = "both"
    """Cut of both directions: nothing arrives at either end."""


@dataclass(frozen=True, slots=True)
class Link:
    """A service's link to the embedded broker."""

    label: str
    """Name of the service, SERVICE/NAME."""
    port: int
    """Port of the proxy to which the service connects."""
    broker_port: int
    """Port of the broker's listener for this link."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Fault of a link: a cut, or with ``delay_ms`` a slow link."""

    direction: Direction = Direction.BOTH
    reset: bool = False
    """Whether connections are closed and new ones refused, instead of passing nothing."""
    delay_ms: int = 0
    """Delay of a slow link, in ms; 0: it is a cut. Everything passes a slow link in the end, at
    most one read of the proxy per delay and direction.
    """

    @property
    def holds_to(self) -> bool:
        """Whether requests do not pass."""
        return self.direction is not Direction.FROM and not self.delay_ms

    @property
    def holds_from(self) -> bool:
        """Whether answers do not pass."""
        return self.direction is not Direction.TO and not self.delay_ms

    @property
    def delay_to_ms(self) -> int:
        """Delay of requests, in ms."""
        return 0 if self.direction is Direction.FROM else self.delay_ms

    @property
    def delay_from_ms(self) -> int:
        """Delay of answers, in ms."""
        return 0 if self.direction is Direction.TO else self.delay_ms

    def in_words(self) -> str:
        """Return a description of the fault for status and messages."""
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
    """Return the folder of a deployment's links and cuts."""
    return state_dir / DIRECTORY_NAME


def lay(folder: Path, links: Sequence[Link]) -> None:
    """Write ``links`` in place of the folder's earlier content, none of them cut."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / _CUTS).mkdir(parents=True, mode=0o700)
    write_whole(folder / _LINKS, json.dumps([asdict(link) for link in links], indent=1))


def read_links(folder: Path) -> list[Link]:
    """Return the links that ``lay`` wrote; empty if there are none."""
    try:
        return [
            Link(**entry) for entry in json.loads((folder / _LINKS).read_text(encoding="utf-8"))
        ]
    except FileNotFoundError:
        return []


def want(folder: Path, label: str, cut: Cut | None) -> None:
    """Request ``cut`` for the link ``label``, in place of its present one; None requests no cut."""
    path = folder / _CUTS / f"{label.replace('/', '-')}.json"
    if cut is None:
        path.unlink(missing_ok=True)
    else:
        write_whole(path, json.dumps({"label": label, **asdict(cut)}))


def wanted(folder: Path) -> dict[str, Cut]:
    """Return the requested cuts by label."""
    found = {}
    with contextlib.suppress(FileNotFoundError):  # no links at all
        for name in sorted(os.listdir(folder / _CUTS)):  # noqa: PTH208 - the proxy asks this 50 times a second
            if name.endswith(".json"):
                with contextlib.suppress(FileNotFoundError):  # healed this moment
                    content = json.loads((folder / _CUTS / name).read_text(encoding="utf-8"))
                    found[content["label"]] = _cut_of(content)
    return found


def write_applied(folder: Path, cuts: Mapping[str, Cut]) -> None:
    """Write the cuts that the proxy has applied."""
    write_whole(folder / _APPLIED, json.dumps({label: asdict(cut) for label, cut in cuts.items()}))


def applied(folder: Path) -> dict[str, Cut]:
    """Return the cuts that the proxy has applied, by label; empty if it never ran."""
    try:
        content = json.loads((folder / _APPLIED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {label: _cut_of(cut) for label, cut in content.items()}


def _cut_of(content: Mapping[str, object]) -> Cut:
    return Cut(
        Direction(str(content["direction"])), bool(content["reset"]), int(str(content["delay_ms"]))
    )
