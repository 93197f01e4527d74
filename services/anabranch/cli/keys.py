"""The commands ``anabranch keys ...``."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.federation_options import (
    AsJson,
    KeyFile,
    federation_of,
    words_and_pipeline,
    words_of,
)
from anabranch.cli.options import DeploymentFile, File, Kafka, StateDir, pipeline_file
from anabranch.cli.tables import print_whole, table

app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")


@app.callback()
def keys(
    context: typer.Context,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    as_json: AsJson = False,
) -> None:
    """Show the keys of the participants of a federation; make, publish and revoke your own.

    What a participant says to others (contracts, catalog entries, published streams) counts only
    if it is signed with a key that the participant had published, and not revoked, when the broker
    took the record. So every participant makes a key and publishes it before anything else.

        anabranch keys                         # whose keys count now

        anabranch keys new north.key

        anabranch keys publish --key north.key

    Exit codes, here and below: 0 done, 1 no broker, 2 wrong usage, no federation in the pipeline
    file, or what would be written would not count.
    """
    if context.invoked_subcommand is not None:
        return
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.operating.contract_book import read_book

    log, federation = federation_of(file, state_dir, kafka)
    now_ms = SystemClock().now_ms()
    with closing(read_book(log, federation)) as reader:
        found = {name: reader.keys.ids(name, now_ms) for name in reader.keys.participants()}
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    elif not found:
        typer.echo("no participant has published a key", err=True)
    else:
        rows = [(name, ", ".join(ids) or "none") for name, ids in found.items()]
        print_whole(table(("participant", "keys"), rows))


@app.command()
def new(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file that is not there yet.")],
    key_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The key's name (default: the time, UTC)."),
    ] = None,
    file: File = None,
) -> None:
    """Make a key pair for the participant that the pipeline file names, without a broker.

    The file gets the private key. Whoever has it can sign for you: give it to nobody. What it
    signs counts after `anabranch keys publish`.

        anabranch keys new north.key
    """
    from anabranch.adapters.key_files import write_key
    from anabranch.adapters.signing import SigningKey
    from anabranch.pipeline.file import load
    from anabranch.protocol.errors import ConfigurationError
    from anabranch.protocol.federation.published_keys import KEY_ID_CHARACTERS_MAX

    named = pipeline_file(file)
    federation = load(named).federation
    if federation is None:
        raise ConfigurationError(f"{named} names no federation, so nobody to make a key for")
    name = key_id or datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    if len(name) > KEY_ID_CHARACTERS_MAX:
        raise ConfigurationError(f"--id: at most {KEY_ID_CHARACTERS_MAX} characters")
    write_key(SigningKey.generate(federation.participant, name), path)
    typer.echo(
        f"key {name} of {federation.participant} is in {path}, which only you can read; others"
        f" believe it once it is published: anabranch keys publish --key {path}"
    )


@app.command()
def publish(
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Publish the public half of a key: what the key signs from now on counts.

    To replace a key, publish the new one first, let all processes use it, then revoke the old one.
    Both count meanwhile.

        anabranch keys publish --key north.key
    """
    words = words_of(file, state_dir, kafka, key)
    words.publish()
    typer.echo(f"key {words.key_id} of {words.participant} is published")


@app.command()
def revoke(
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Revoke a key, because it was replaced or somebody else may have it: what it signs from now on
    counts for nothing.

    What it signed before still counts. This cannot be undone, and the key's id cannot be used
    again.

        anabranch keys revoke --key north.key
    """
    words = words_of(file, state_dir, kafka, key)
    words.publish(is_revoked=True)
    typer.echo(f"key {words.key_id} of {words.participant} is revoked")


@app.command()
def signers(
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Publish which other participants may sign the streams that your pipeline publishes.

    Readers in other pipelines accept a record of a stream only with the signature of its owner, or
    of a participant that the owner names. Where another participant runs the stage of a published
    stream, as a partner or because the stage is its offer, it signs the stream. This command takes
    the names from the pipeline file, and prints what has changed. Give it again whenever
    `partners`, `publish` or offered stages in the file change: a participant that is no longer
    there may sign nothing new.

        anabranch keys signers --key north.key       # at north, the owner of the streams
    """
    words, pipeline = words_and_pipeline(file, state_dir, kafka, key)
    changes = words.name_signers(pipeline.name, pipeline.other_signers())
    for change in changes:
        may = "may no longer sign" if change.is_withdrawn else "may sign"
        typer.echo(f"{change.signer} {may} {change.pipeline}.{change.stream}")
    if not changes:
        typer.echo("there is nothing new to say")
