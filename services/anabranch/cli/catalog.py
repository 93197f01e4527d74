"""The command ``anabranch catalog``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.cli.federation_options import AsJson
from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker
from anabranch.cli.tables import print_whole, table


def catalog(
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    participant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="List entries of this participant only."),
    ] = None,
    as_json: AsJson = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Look up the pipeline file's bindings anew, and keep them in a file beside it.",
        ),
    ] = False,
) -> None:
    """List the streams that participants of the federation publish, and the stages that they run
    for others.

    Each participant's contract broker refreshes its entry. An entry that is not refreshed is
    `unknown since` its lease ended. Rejected entries are listed below, with the reason.

        anabranch catalog

        anabranch catalog --participant north --json | jq '.entries[].key'

        anabranch catalog --keep --kafka broker-1:9092

    Exit codes: 0 shown, or kept; 1 no broker; 2 a binding is not found.
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.federation.catalog_table import rows_of
    from anabranch.pipeline.file import federation_name

    named, address = file_and_broker(file, state_dir, kafka)
    if keep:
        _keep(named, address)
        return
    federation, log = federation_name(named), KafkaEventLog(address)
    found = rows_of(log, federation, SystemClock().now_ms(), participant)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    if found["entries"]:
        heads = ("participant", "pipeline", "stream or offer", "columns", "bucket", "state")
        print_whole(table(heads, [row for entry in found["entries"] for row in _rows(entry)]))
    else:
        typer.echo(f"no participant lists anything in {federation}", err=True)
    for each in found["rejected"]:
        typer.echo(f"rejected: {each['records']} of {each['participant']}: {each['why']}", err=True)


def _rows(entry: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return a table row for each stream and each offer of a catalog entry."""
    owner, pipeline = entry["participant"], entry["pipeline"]
    state = entry["state"]
    found: list[tuple[str, ...]] = [
        (
            owner,
            pipeline,
            stream["stream"],
            stream["fingerprint"],
            f"{stream['bucket_ms']} ms",
            state,
        )
        for stream in entry["streams"]
    ]
    found += [
        (owner, pipeline, f"offer {offer['offer']} v{offer['version']}", "", "", state)
        for offer in entry["offers"]
    ]
    return found or [(owner, pipeline, "nothing", "", "", state)]


def _keep(file: Path, address: str) -> None:
    """Look up the bindings of the pipeline file anew, keep them, and print what has changed."""
    from anabranch.adapters.connect import other_cluster
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.federation.binding_lookup import BindingLookup, keep_anew
    from anabranch.pipeline.file import load

    lookup = BindingLookup(KafkaEventLog(address), SystemClock(), other_cluster)
    for line in [*keep_anew(file, None, lookup), *lookup.unreadable_logs(load(file))]:
        typer.echo(line)
    if not lookup.found:
        typer.echo(f"{file} has no binding to look up: each states its columns, or there is none")
