"""Reader of the YAML file that states the terms of a contract for streams, with one plan or
several, and of a file whose kind of contract is not known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from anabranch.federation.contract_file import TermsReader, contract_of
from anabranch.pipeline.document import MISSING, Place
from anabranch.pipeline.yaml_text import read_yaml
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.stream_contracts import (
    GAIN_PERMILLE_MAX,
    RATE_MAX,
    Payment,
    StreamContract,
    StreamTerms,
    Tier,
    stream_defects,
)

_KEYS: Final = (
    "contract",
    "version",
    "sender",
    "receiver",
    "bucket",
    "valid",
    "plans",
    "settle",
    "notice",
    "query",
)
_PLAN: Final = ("at_sender", "stream", "payment", "tiers", "delay", "rate_max")
_TIER: Final = ("availability_ppm", "price")
_QUERY: Final = ("pipeline", "proposal", "deadline", "min_hold", "gain_permille")

STREAM_EXAMPLE: Final = """\
contract: north-billing
sender: north                    # publishes the stream, and is paid
receiver: billing                # reads it, and pays
bucket: 100ms
valid: {from: 2026-12-01T00:00:00Z, to: 2027-03-01T00:00:00Z}
plans:
- stream: {pipeline: north, name: speeds}
  payment: message               # each row that comes in time; or second: by subscription
  tiers:                         # from this availability on, this price in micro-units
  - {availability_ppm: 999000, price: 50}
  - {availability_ppm: 900000, price: 30}
  delay: 3s                      # what comes later after the end of its bucket is not in time
  rate_max: 1000                 # rows in a second that are paid at most
settle: 1m
notice: 1d
"""
"""Example file of a contract with one plan, to start from."""

PLANS_EXAMPLE: Final = """\
contract: north-billing-plans
sender: north                    # publishes the stream, may run the query, and is paid
receiver: billing                # has the query in its pipeline, and pays
bucket: 100ms
valid: {from: 2026-12-01T00:00:00Z, to: 2027-03-01T00:00:00Z}
plans:
- stream: {pipeline: north, name: speeds}    # the plain plan: billing runs the query
  payment: message
  tiers: [{availability_ppm: 999000, price: 50}]
  delay: 3s
  rate_max: 1000
- at_sender: [slow]              # north runs stage slow, and billing pays for its results
  stream: {pipeline: billing, name: slow}
  payment: message               # each row that comes in time; or second: by subscription
  tiers:                         # from this availability on, this price in micro-units
  - {availability_ppm: 999000, price: 90}
  - {availability_ppm: 900000, price: 60}
  delay: 5s                      # what comes later after the end of its bucket is not in time
  rate_max: 1000                 # rows in a second that are paid at most
settle: 1m
notice: 1d
query:
  pipeline: billing
  proposal: 10s                  # a proposal can be agreed to for this long
  deadline: 2m                   # a switch may take this long
  min_hold: 1m                   # a plan stays at least this long before another is proposed
  gain_permille: 50              # a new plan must be better by this much
"""
"""Example file of a contract with several plans, to start from."""


def load_terms(path: Path | str) -> Contract | StreamContract:
    """Return the contract in the file at ``path``: one for streams if it names a sender, a receiver
    or plans, otherwise one for load.

    Raises:
        ConfigurationError: one line per mistake, ``FILE:LINE: key: what; how to fix``.
    """
    path = Path(path)
    root = read_yaml(path, "contract")
    if isinstance(root, dict) and root.keys() & {"sender", "receiver", "plans"}:
        walk = _StreamReader(path, root)
        contract = walk.contract()
        return walk.without_mistakes(contract, stream_defects(contract))
    return contract_of(path, root)


class _StreamReader(TermsReader):
    """Reader of one file. Its result counts only if it noted no mistakes."""

    def contract(self) -> StreamContract:
        """Return the whole contract."""
        top = self.mapping(self.root, (), _KEYS)
        valid = self.mapping(top.get("valid", MISSING), ("valid",), ("from", "to"))
        return StreamContract(
            contract_id=self.named(top, ("contract",), "contract"),
            version=self.version(top),
            sender=self.named(top, ("sender",), "participant"),
            receiver=self.named(top, ("receiver",), "participant"),
            bucket_ms=self.length(top, ("bucket",)),
            valid_from_ms=self.time(valid, ("valid", "from")),
            valid_to_ms=self.time(valid, ("valid", "to")),
            plans=self._plans(top.get("plans", MISSING)),
            settle_ms=self.length(top, ("settle",)),
            notice_ms=self.length(top, ("notice",)),
            **self._query(top),
        )

    def _query(self, top: dict[str, Any]) -> dict[str, Any]:
        """Return the fields that only a contract with several plans has."""
        if "query" not in top:
            return {}
        raw = self.mapping(top["query"], ("query",), _QUERY)
        return {
            "pipeline": self.named(raw, ("query", "pipeline"), "pipeline"),
            "proposal_ms": self.length(raw, ("query", "proposal")),
            "deadline_ms": self.length(raw, ("query", "deadline")),
            "min_hold_ms": self.length(raw, ("query", "min_hold")),
            "gain_permille": self.whole(raw, ("query", "gain_permille"), GAIN_PERMILLE_MAX),
        }

    def _plans(self, value: object) -> tuple[StreamTerms, ...]:
        if not isinstance(value, list):
            self.mistake(("plans",), "a list of plans is wanted, the plain one first")
            return ()
        return tuple(self._plan(number, each) for number, each in enumerate(value))

    def _plan(self, number: int, value: object) -> StreamTerms:
        at = ("plans", number)
        raw: dict[str, Any] = self.mapping(value, at, _PLAN)
        stream = self.mapping(raw.get("stream", MISSING), (*at, "stream"), ("pipeline", "name"))
        stages = raw.get("at_sender", [])
        named = self.texts(stages, (*at, "at_sender"), "stage") if stages != [] else ()
        return StreamTerms(
            at_sender=tuple(sorted(stage for stage, _ in named)),
            pipeline=self.named(stream, (*at, "stream", "pipeline"), "pipeline"),
            stream=self.named(stream, (*at, "stream", "name"), "stage"),
            payment=Payment(
                self.choice(raw.get("payment"), (*at, "payment"), tuple(Payment)),
            ),
            tiers=self._tiers(raw.get("tiers", MISSING), (*at, "tiers")),
            delay_ms_max=self.length(raw, (*at, "delay")),
            rate_max=self.whole(raw, (*at, "rate_max"), RATE_MAX),
        )

    def _tiers(self, value: object, at: Place) -> tuple[Tier, ...]:
        if not isinstance(value, list):
            self.mistake(at, "a list of {availability_ppm: ..., price: ...} is wanted")
            return ()
        found = []
        for number, each in enumerate(value):
            tier: dict[str, Any] = self.mapping(each, (*at, number), _TIER)
            found.append(
                Tier(
                    self.ppm(tier, (*at, number, "availability_ppm")),
                    self.amount(tier, (*at, number, "price")),
                )
            )
        return tuple(found)
