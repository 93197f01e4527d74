"""Stages of a pipeline file that are instances of another participant's offers.

Two participants read such a file. The *definer*, which owns the file, reads it with the file of
terms that it was given, and does not know the code. The owner of the offer is the *host*: it reads
the same file beside its own pipeline file, which has code and terms. The host trusts the definer's
file as little as possible: it imports no code that the file names, puts none of its own environment
variables into it, and runs nothing but its offers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anabranch.codec.record_schema import RecordSchema
from anabranch.pipeline.document import Document, Place, words
from anabranch.pipeline.model import Federation, OfferedStage, Stage
from anabranch.pipeline.offers import known_offers, types_of
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.offered_stages import arguments, rejection, wrong_columns

_STAGE_KEYS: Final = ("participant", "offered", "reads", "parameters", "on_missing_input")


@dataclass(frozen=True, slots=True)
class Host:
    """Participant that reads a definer's file to run its own offers there."""

    federation: Federation
    """Section ``federation`` of its own pipeline file."""
    path: Path
    """Its own pipeline file."""

    @property
    def participant(self) -> str:
        """Name of the host."""
        return self.federation.participant


class OfferedStages:
    """Reader of the stages of one pipeline file that are instances of offers, and checker of their
    use.
    """

    def __init__(self, file: Document, section: object, host: Host | None) -> None:
        """Read the files of terms that the file names. ``section``: the content of its section
        ``federation``.
        """
        self._file, self.host = file, host
        raw = section if isinstance(section, dict) else {}
        self._federation, self._definer = raw.get("name"), raw.get("participant")
        self._known: dict[str, dict[str, OfferedStage]] = {}
        at: Place = ("federation", "offered")
        for owner, named in file.mapping(raw.get("offered", {}), at, None).items():
            path = file.text(named, (*at, owner))
            if path is None:
                continue
            try:
                self._known[owner] = known_offers(
                    file.path.resolve().parent / path,
                    str(self._federation),
                    owner,
                    str(self._definer),
                )
            except ConfigurationError as error:
                for line in str(error).splitlines():
                    file.mistake((*at, owner), line)

    def stage(self, stage: Stage, raw: Mapping[str, Any]) -> Stage:
        """Return ``stage``, which was read without regard to its offer, as an instance of the
        offer.
        """
        file, at = self._file, ("stages", stage.name)
        for key in raw.keys() - {*_STAGE_KEYS}:
            file.mistake((*at, key), "the owner of the offer sets this; leave it out")
        if stage.participant == self._definer:
            file.mistake(
                (*at, "participant"),
                f"{self._definer} is the owner of this file; name the owner of the offer",
            )
            return stage
        name = file.text(raw["offered"], (*at, "offered"))
        known = self._known.get(stage.participant)
        if known is None:
            file.mistake(
                (*at, "offered"),
                f"the offers of {stage.participant} are not known; name the file of terms that"
                f" it gave you, federation: {{offered: {{{stage.participant}: FILE}}}}",
            )
            return stage
        if name is None:
            return stage
        offer = known.get(name)
        if offer is None:
            file.mistake(
                (*at, "offered"),
                f"{stage.participant} does not offer {name} to {self._definer}; it offers"
                f" {words(list(known))}",
            )
            return stage
        given, wrong = arguments(offer.terms.parameters, stage.parameters)
        for parameter, text in wrong.items():
            place = ("parameters", parameter) if parameter in stage.parameters else ("parameters",)
            file.mistake(
                (*at, *place), text if parameter in stage.parameters else f"{parameter} {text}"
            )
        if len(stage.reads) != len(offer.reads):
            file.mistake(
                (*at, "reads"),
                f"{name} of {stage.participant} reads {len(offer.reads)} streams,"
                f" {words(list(offer.reads))}, and {len(stage.reads)} are named",
            )
        own = self._own_offer(stage, offer)
        return stage.model_copy(
            update={
                "offered": own,
                "transform": own.transform,
                "sql": own.sql,
                "version": own.terms.version,
                "parameters": dict(given),
            }
        )

    def _own_offer(self, stage: Stage, known: OfferedStage) -> OfferedStage:
        """Return the offer with its code where the host is its owner; otherwise ``known``."""
        host = self.host
        if host is None or host.participant != stage.participant:
            return known
        own = host.federation.offers.get(known.name)
        why = rejection(
            known.terms,
            None if own is None else own.terms,
            str(self._definer),
            None if own is None else own.offered_to,
        )
        if why:
            self._file.mistake(
                ("stages", stage.name, "offered"),
                f"{host.participant} does not run {known.name}: {why} ({host.path}). There,"
                f" `anabranch offers --to {self._definer}` lists what it offers",
            )
        return known if own is None else own

    def check(self, stages: Mapping[str, Stage], records: Mapping[str, RecordSchema]) -> None:
        """Check that the inputs of all instances have the columns that the offers state.
        ``records``: columns of sources and bindings; those of the definer's own stages are known
        only when they run.
        """
        file, host = self._file, self.host
        owners = {stage.participant for stage in stages.values() if stage.offered is not None}
        for stage in stages.values():
            if stage.offered is None and stage.participant in owners | (
                set() if host is None else {host.participant}
            ):
                file.mistake(
                    ("stages", stage.name),
                    f"{stage.participant} runs nothing in this pipeline but what it offers; name an"
                    " offer of it, offered: NAME, or another participant",
                )
        for stage in stages.values():
            if stage.offered is None:
                continue
            for index, (stream, argument) in enumerate(
                zip(stage.reads, stage.arguments, strict=False)
            ):
                offer = stages[stream].offered if stream in stages else None
                there = offer.gives if offer is not None else records.get(stream)
                if there is None:
                    continue
                for wrong in wrong_columns(
                    types_of(stage.offered.reads[argument]), types_of(there)
                ):
                    file.mistake(
                        ("stages", stage.name, "reads", index),
                        f"{stream} cannot be the input {argument} of {stage.offered.name}: {wrong}",
                    )
        if host is not None and host.participant not in owners:
            file.mistake(
                ("stages",),
                f"no stage is what {host.participant} offers, so there is nothing to run for"
                f" {host.path}",
            )
