"""Reader of the YAML file that states the terms of a contract for load, with mistakes named by
line; base of the readers of other contracts.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from anabranch.pipeline.document import MISSING, Document, Place, shown
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.contracts import (
    PARTS_PER_MILLION,
    PRICE_MICRO_MAX,
    TIME_MS_MAX,
    AuditClauses,
    Contract,
    EndClauses,
    LoadUnit,
    MoveClauses,
    PenaltyClauses,
    QualityClauses,
    defects,
)
from anabranch.protocol.stage.owners_checkpoint import Transfer

TextT = TypeVar("TextT")

_SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "valid": ("from", "to"),
    "price": ("fixed", "delta"),
    "unit": ("reference", "share_ppm"),
    "moving": ("transfer", "deadline"),
    "quality": ("delay",),
    "ending": ("notice", "drain"),
    "penalty": ("violation", "silent_per_s"),
    "audit": ("meter", "tolerance_ppm", "sample_ppm", "settle"),
}
_KEYS: Final = ("contract", "version", "buyer", "seller", "tasks", "min_hold", *_SECTIONS)

EXAMPLE: Final = """\
contract: north-south
buyer: north                     # hands load over, and pays
seller: south                    # runs it, and is paid
valid: {from: 2026-12-01T00:00:00Z, to: 2027-03-01T00:00:00Z}
price: {fixed: 1000, delta: 200} # micro-units per unit of load and second: from 800 to 1000
unit: {reference: row/s, share_ppm: 1000000} # agents trade rows of input in a second, nothing else
tasks: [north.tolls, north.volumes] # PIPELINE.STAGE
min_hold: 10s                    # a task that has moved stays at least this long
moving: {transfer: rebuild, deadline: 2m} # state: as the stages say; time for the seller's Spark
quality: {delay: 3s}
ending: {notice: 1d, drain: 1m}
penalty: {violation: 5000000, silent_per_s: 2000}
audit: {meter: 1s, tolerance_ppm: 50000, sample_ppm: 10000, settle: 1m}
"""
"""Example file, to start from."""


def contract_of(path: Path, root: object) -> Contract:
    """Return the contract in ``root``, the content of the file at ``path``.

    Raises:
        ConfigurationError: one line per mistake, ``FILE:LINE: key: what; how to fix``.
    """
    walk = _ContractReader(path, root)
    contract = walk.contract()
    return walk.without_mistakes(contract, defects(contract))


class TermsReader(Document):
    """Base of the readers of all kinds of contracts: values that each of them has."""

    def without_mistakes(self, text: TextT, found: Iterable[str]) -> TextT:
        """Return ``text`` if it was read without mistakes and has no defects. ``found``: its
        defects, an iterator that is not consumed while there are mistakes.

        Raises:
            ConfigurationError: one line per mistake, or per defect.
        """
        wrong = self.sorted_mistakes() if self.mistakes else [f"{self.path}: {x}" for x in found]
        if wrong:
            raise ConfigurationError("\n".join(wrong))
        return text

    def named(self, raw: dict[str, Any], at: Place, kind: str) -> str:
        """Return the name at the key ``at``, which must be one that topics can carry; empty after a
        mistake.
        """
        return self.name(raw.get(cast("str", at[-1]), MISSING), at, kind) or ""

    def version(self, top: dict[str, Any]) -> int:
        """Return the version of the contract; the first is 1."""
        return self.integer(top.get("version", 1), ("version",), 1, 2**31)

    def amount(self, raw: dict[str, Any], at: Place) -> int:
        """Return the amount of money at the key ``at``, in micro-units."""
        return self.whole(raw, at, PRICE_MICRO_MAX)

    def ppm(self, raw: dict[str, Any], at: Place) -> int:
        """Return the share at the key ``at``, in parts per million."""
        return self.whole(raw, at, PARTS_PER_MILLION)

    def whole(self, raw: dict[str, Any], at: Place, most: int) -> int:
        """Return the integer from 0 to ``most`` at the key ``at``."""
        return self.integer(raw.get(cast("str", at[-1]), MISSING), at, 0, most)

    def length(self, raw: dict[str, Any], at: Place) -> int:
        """Return the duration at the key ``at``, in ms."""
        return self.duration(raw.get(cast("str", at[-1]), MISSING), at) or 0

    def time(self, raw: dict[str, Any], at: Place) -> int:
        """Return the time at the key ``at``, in ms since 1970."""
        value = raw.get(cast("str", at[-1]), MISSING)
        try:
            # YAML already turns a time without quotes into a datetime, in UTC if it has no zone.
            found = (
                value if isinstance(value, datetime) else datetime.fromisoformat(cast("str", value))
            )
            zoned = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
            found_ms = round(zoned.timestamp() * 1_000)
        except (TypeError, ValueError, OverflowError):
            found_ms = -1
        if not 0 <= found_ms <= TIME_MS_MAX:
            self.mistake(at, f"{shown(value)} is not a time; write it as 2026-12-01T00:00:00Z")
            return 0
        return found_ms


class _ContractReader(TermsReader):
    """Reader of one file. Its result counts only if it noted no mistakes."""

    def contract(self) -> Contract:
        """Return the whole contract."""
        top = self.mapping(self.root, (), _KEYS)
        valid, price, unit, moving, quality, ending, penalty, audit = (
            self._section(top, key) for key in _SECTIONS
        )
        return Contract(
            contract_id=self.named(top, ("contract",), "contract"),
            version=self.version(top),
            buyer=self.named(top, ("buyer",), "participant"),
            seller=self.named(top, ("seller",), "participant"),
            valid_from_ms=self.time(valid, ("valid", "from")),
            valid_to_ms=self.time(valid, ("valid", "to")),
            fixed_price=self.amount(price, ("price", "fixed")),
            delta=self.amount(price, ("price", "delta")),
            unit=LoadUnit(
                self.text(unit.get("reference", MISSING), ("unit", "reference")) or "",
                self.ppm(unit, ("unit", "share_ppm")),
            ),
            tasks=tuple(
                sorted(
                    task for task, _ in self.texts(top.get("tasks", MISSING), ("tasks",), "task")
                )
            ),
            min_hold_ms=self.length(top, ("min_hold",)),
            moving=MoveClauses(
                Transfer(
                    self.choice(moving.get("transfer"), ("moving", "transfer"), tuple(Transfer))
                ),
                self.length(moving, ("moving", "deadline")),
            ),
            quality=QualityClauses(self.length(quality, ("quality", "delay"))),
            ending=EndClauses(
                self.length(ending, ("ending", "notice")),
                self.length(ending, ("ending", "drain")),
            ),
            penalty=PenaltyClauses(
                self.amount(penalty, ("penalty", "violation")),
                self.amount(penalty, ("penalty", "silent_per_s")),
            ),
            audit=AuditClauses(
                self.length(audit, ("audit", "meter")),
                self.ppm(audit, ("audit", "tolerance_ppm")),
                self.ppm(audit, ("audit", "sample_ppm")),
                self.length(audit, ("audit", "settle")),
            ),
        )

    def _section(self, top: dict[str, Any], key: str) -> dict[str, Any]:
        if key not in top:
            self.mistake((), f"{key}: is missing; `anabranch contracts terms` prints all of them")
            return {}
        return self.mapping(top[key], (key,), _SECTIONS[key])
