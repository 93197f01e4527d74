"""Reader of the YAML file that states the terms of a contract for a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from anabranch.federation.contract_file import Terms
from anabranch.pipeline.document import MISSING, Place
from anabranch.pipeline.yaml_text import read_yaml
from anabranch.protocol.federation.content_contracts import (
    RATE_MAX,
    ContentContract,
    Payment,
    Tier,
    content_defects,
)

_KEYS: Final = (
    "contract",
    "version",
    "sender",
    "receiver",
    "stream",
    "valid",
    "payment",
    "tiers",
    "delay",
    "rate_max",
    "settle",
    "notice",
)
_STREAM: Final = ("pipeline", "name", "bucket")
_TIER: Final = ("availability_ppm", "price")

CONTENT_EXAMPLE: Final = """\
contract: north-billing
sender: north                    # publishes the stream, and is paid
receiver: billing                # reads it, and pays
stream: {pipeline: north, name: speeds, bucket: 100ms}
valid: {from: 2026-12-01T00:00:00Z, to: 2027-03-01T00:00:00Z}
payment: message                 # each row that comes in time; or second: by subscription
tiers:                           # from this availability on, this price in micro-units
- {availability_ppm: 999000, price: 50}
- {availability_ppm: 900000, price: 30}
delay: 3s                        # what comes later after the end of its bucket is not in time
rate_max: 1000                   # rows in a second that are paid at most
settle: 1m
notice: 1d
"""
"""Example file, to start from."""


def load_content(path: Path | str) -> ContentContract:
    """Return the contract for a stream in the file at ``path``.

    Raises:
        ConfigurationError: one line per mistake, ``FILE:LINE: key: what; how to fix``.
    """
    path = Path(path)
    return content_of(path, read_yaml(path, "contract"))


def content_of(path: Path, root: object) -> ContentContract:
    """Return the contract in ``root``, the content of the file at ``path``; otherwise as
    ``load_content``.
    """
    walk = _ContentReader(path, root)
    contract = walk.contract()
    return walk.without_mistakes(contract, content_defects(contract))


class StreamTerms(Terms):
    """Base of the readers of contracts under which streams are paid for."""

    def payment(self, raw: dict[str, Any], at: Place) -> Payment:
        """Return what the price is paid for."""
        return Payment(self.choice(raw.get("payment"), at, tuple(Payment)))

    def tiers(self, raw: dict[str, Any], at: Place) -> tuple[Tier, ...]:
        """Return the price tiers: from which availability on which price applies."""
        value = raw.get("tiers", MISSING)
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


class _ContentReader(StreamTerms):
    """Reader of one file. Its result counts only if it noted no mistakes."""

    def contract(self) -> ContentContract:
        """Return the whole contract."""
        top = self.mapping(self.root, (), _KEYS)
        stream = self.mapping(top.get("stream", MISSING), ("stream",), _STREAM)
        valid = self.mapping(top.get("valid", MISSING), ("valid",), ("from", "to"))
        sender = self.named(top, ("sender",), "participant")
        entity = self.named(stream, ("stream", "name"), "stage")
        return ContentContract(
            contract_id=self.named(top, ("contract",), "contract"),
            version=self.version(top),
            sender=sender,
            receiver=self.named(top, ("receiver",), "participant"),
            stream=f"{sender}.{entity}",
            pipeline=self.named(stream, ("stream", "pipeline"), "pipeline"),
            bucket_ms=self.length(stream, ("stream", "bucket")),
            valid_from_ms=self.time(valid, ("valid", "from")),
            valid_to_ms=self.time(valid, ("valid", "to")),
            payment=self.payment(top, ("payment",)),
            tiers=self.tiers(top, ("tiers",)),
            delay_ms_max=self.length(top, ("delay",)),
            rate_max=self.whole(top, ("rate_max",), RATE_MAX),
            settle_ms=self.length(top, ("settle",)),
            notice_ms=self.length(top, ("notice",)),
        )
