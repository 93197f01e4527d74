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
    commands_and_pipeline,
    commands_of,
    federation_of,
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

    A participant's records for others (contracts, catalog entries, published streams) are accepted
    only if they are signed with a key that the participant had published, and not revoked, when the
    broker appended the record. So every participant makes a key and publishes it before anything
    else.

        anabranch keys                         # the keys that are valid now

        anabranch keys new north.key

        anabranch keys publish --key north.key

    Exit codes, here and below: 0 done, 1 no broker, 2 wrong usage, no federation in the pipeline
    file, or readers would reject the record, which is then not written.
    """
    if context.invoked_subcommand is not None:
        return
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.federation.tables import read_book

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
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file that does not exist.")],
    key_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The key's name (default: the time, UTC)."),
    ] = None,
    file: File = None,
) -> None:
    """Make a key pair for the participant that the pipeline file names, without a broker.

    The file holds the private key. Anybody who has it can sign for you: keep it secret. Others
    accept its signatures after `anabranch keys publish`.

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
        raise ConfigurationError(
            f"{named} names no federation, so it names no participant to make a key for. Add"
            " `federation` with `name` and `participant`"
        )
    name = key_id or datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    if len(name) > KEY_ID_CHARACTERS_MAX:
        raise ConfigurationError(f"--id: at most {KEY_ID_CHARACTERS_MAX} characters")
    write_key(SigningKey.generate(federation.participant, name), path)
    typer.echo(
        f"key {name} of {federation.participant} is in {path}, which only you can read; others"
        f" accept it once it is published: anabranch keys publish --key {path}"
    )


@app.command()
def publish(
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Publish the public half of a key: others accept its signatures from now on.

    To replace a key, publish the new one first, let all processes use it, then revoke the old one.
    Both are accepted meanwhile.

        anabranch keys publish --key north.key
    """
    commands = commands_of(file, state_dir, kafka, key)
    commands.publish()
    typer.echo(f"key {commands.key_id} of {commands.participant} is published")


@app.command()
def revoke(
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Revoke a key, because it was replaced or somebody else may have it: others reject its
    signatures from now on.

    Earlier signatures remain valid. This cannot be undone, and the key's id cannot be used again.

        anabranch keys revoke --key north.key
    """
    commands = commands_of(file, state_dir, kafka, key)
    commands.publish(is_revoked=True)
    typer.echo(f"key {commands.key_id} of {commands.participant} is revoked")


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
    commands, pipeline = commands_and_pipeline(file, state_dir, kafka, key)
    changes = commands.name_signers(pipeline.name, pipeline.other_signers())
    for change in changes:
        may = "may no longer sign" if change.is_withdrawn else "may sign"
        typer.echo(f"{change.signer} {may} {change.pipeline}.{change.stream}")
    if not changes:
        typer.echo("nothing has changed since the last time")
