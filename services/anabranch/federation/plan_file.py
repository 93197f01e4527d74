"""Reader of the YAML file that states the terms of a movement contract, and of a file whose kind of
contract is not known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from anabranch.federation.content_file import StreamTerms, content_of
from anabranch.federation.contract_file import contract_of
from anabranch.pipeline.document import MISSING
from anabranch.pipeline.yaml_text import read_yaml
from anabranch.protocol.federation.content_contracts import RATE_MAX, ContentContract
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.plan_contracts import (
    GAIN_PERMILLE_MAX,
    MovementContract,
    Plan,
    plan_defects,
)

_KEYS: Final = (
    "contract",
    "version",
    "sender",
    "receiver",
    "query",
    "valid",
    "plans",
    "settle",
    "notice",
    "proposal",
    "deadline",
    "min_hold",
    "gain_permille",
)
_PLAN: Final = ("at_sender", "stream", "payment", "tiers", "delay", "rate_max")

PLANS_EXAMPLE: Final = """\
contract: north-billing-plans
sender: north                    # publishes the stream, may run the query, and is paid
receiver: billing                # has the query in its pipeline, and pays
query: {pipeline: billing, bucket: 100ms}
valid: {from: 2026-12-01T00:00:00Z, to: 2027-03-01T00:00:00Z}
plans:
- at_sender: []                  # the plain plan: billing runs the query, and pays for the stream
  stream: {pipeline: north, name: speeds}
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
proposal: 10s                    # a proposal can be agreed to for this long
deadline: 2m                     # a switch may take this long
min_hold: 1m                     # a plan stays at least this long before another is proposed
gain_permille: 50                # a new plan must be better by this much
"""
"""Example file, to start from."""


def load_terms(path: Path | str) -> Contract | ContentContract | MovementContract:
    """Return the contract in the file at ``path``: a movement contract if it has plans, one for a
    stream if it names a sender, otherwise one for load.

    Raises:
        ConfigurationError: one line per mistake, ``FILE:LINE: key: what; how to fix``.
    """
    path = Path(path)
    root = read_yaml(path, "contract")
    if isinstance(root, dict) and root.keys() & {"plans", "query"}:
        walk = _MovementReader(path, root)
        contract = walk.contract()
        return walk.without_mistakes(contract, plan_defects(contract))
    if isinstance(root, dict) and root.keys() & {"sender", "receiver"}:
        return content_of(path, root)
    return contract_of(path, root)


class _MovementReader(StreamTerms):
    """Reader of one file. Its result counts only if it noted no mistakes."""

    def contract(self) -> MovementContract:
        """Return the whole contract."""
        top = self.mapping(self.root, (), _KEYS)
        query = self.mapping(top.get("query", MISSING), ("query",), ("pipeline", "bucket"))
        valid = self.mapping(top.get("valid", MISSING), ("valid",), ("from", "to"))
        return MovementContract(
            contract_id=self.named(top, ("contract",), "contract"),
            version=self.version(top),
            sender=self.named(top, ("sender",), "participant"),
            receiver=self.named(top, ("receiver",), "participant"),
            pipeline=self.named(query, ("query", "pipeline"), "pipeline"),
            bucket_ms=self.length(query, ("query", "bucket")),
            valid_from_ms=self.time(valid, ("valid", "from")),
            valid_to_ms=self.time(valid, ("valid", "to")),
            plans=self._plans(top.get("plans", MISSING)),
            settle_ms=self.length(top, ("settle",)),
            notice_ms=self.length(top, ("notice",)),
            proposal_ms=self.length(top, ("proposal",)),
            deadline_ms=self.length(top, ("deadline",)),
            min_hold_ms=self.length(top, ("min_hold",)),
            gain_permille=self.whole(top, ("gain_permille",), GAIN_PERMILLE_MAX),
        )

    def _plans(self, value: object) -> tuple[Plan, ...]:
        if not isinstance(value, list):
            self.mistake(("plans",), "a list of plans is wanted, the plain one first")
            return ()
        return tuple(self._plan(number, each) for number, each in enumerate(value))

    def _plan(self, number: int, value: object) -> Plan:
        at = ("plans", number)
        raw: dict[str, Any] = self.mapping(value, at, _PLAN)
        stream = self.mapping(raw.get("stream", MISSING), (*at, "stream"), ("pipeline", "name"))
        return Plan(
            at_sender=tuple(sorted(self._stages(raw.get("at_sender", MISSING), number))),
            pipeline=self.named(stream, (*at, "stream", "pipeline"), "pipeline"),
            stream=self.named(stream, (*at, "stream", "name"), "stage"),
            payment=self.payment(raw, (*at, "payment")),
            tiers=self.tiers(raw, (*at, "tiers")),
            delay_ms_max=self.length(raw, (*at, "delay")),
            rate_max=self.whole(raw, (*at, "rate_max"), RATE_MAX),
        )

    def _stages(self, value: object, number: int) -> list[str]:
        if value == []:
            return []
        return [stage for stage, _ in self.texts(value, ("plans", number, "at_sender"), "stage")]
