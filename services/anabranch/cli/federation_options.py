"""Options that the commands of a federation share: federation, broker, key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.options import file_and_broker
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.federation.commands import FederationCommands
    from anabranch.pipeline.model import Federation, Pipeline
    from anabranch.ports import EventLog

AsJson = Annotated[
    bool, typer.Option("--json", help="As JSON, with amounts and prices in whole numbers.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        envvar="ANABRANCH_SIGNING_KEY_FILE",
        help="The participant's private key, as `anabranch keys new` made it.",
    ),
]


def federation_of(
    file: Path | None, state_dir: Path | None, kafka: str | None
) -> tuple[EventLog, Federation]:
    """Return the cluster and the federation of the pipeline file that a command is given for.

    Raises:
        ConfigurationError: the pipeline file names no federation, or no broker is known.
    """
    log, _, federation = _deployment(file, state_dir, kafka)
    return log, federation


def commands_of(
    file: Path | None, state_dir: Path | None, kafka: str | None, key: Path | None
) -> FederationCommands:
    """Return the commands of the participant that the pipeline file names, signed by ``key``.

    Raises:
        ConfigurationError: the pipeline file names no federation, no broker is known, or ``key`` is
            missing or cannot be used.
    """
    return commands_and_pipeline(file, state_dir, kafka, key)[0]


def commands_and_pipeline(
    file: Path | None, state_dir: Path | None, kafka: str | None, key: Path | None
) -> tuple[FederationCommands, Pipeline]:
    """Return the participant's commands, and the pipeline of its pipeline file.

    Raises:
        ConfigurationError: as ``commands_of``.
    """
    from anabranch.adapters.key_files import key_for
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.federation.commands import FederationCommands

    log, pipeline, federation = _deployment(file, state_dir, kafka)
    if key is None:
        raise ConfigurationError(
            "no signing key is named: give --key FILE, or set ANABRANCH_SIGNING_KEY_FILE;"
            f" anabranch keys new {federation.participant}.key makes one"
        )
    signing = key_for(federation.participant, key)
    return FederationCommands(log, federation, signing, SystemClock()), pipeline


def _deployment(
    file: Path | None, state_dir: Path | None, kafka: str | None
) -> tuple[EventLog, Pipeline, Federation]:
    """Return the cluster, the pipeline, and the federation that the pipeline file names."""
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.pipeline.file import load

    named, address = file_and_broker(file, state_dir, kafka)
    pipeline = load(named)
    if pipeline.federation is None:
        raise ConfigurationError(
            f"{named} names no federation. Add its name and your participant, such as:\n"
            "federation: {name: tolls, participant: north, auditor: audit}"
        )
    return KafkaEventLog(address), pipeline, pipeline.federation
