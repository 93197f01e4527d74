"""The command ``anabranch scale``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker
from anabranch.cli.tables import print_whole, table
from anabranch.cli.work_display import WorkDisplay
from anabranch.pipeline.durations import readable_ms, time_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from anabranch.operating.scale import LoadView

_EVENTS_SHOWN = 10
"""Number of newest decisions that are listed; ``--json`` has more."""


def scale(
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object: nodes, notes, events, would.")
    ] = False,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
) -> None:
    """Show what the scaler sees of each node, what it has decided and why, and what it would do
    now.

    A pipeline whose file has a section `scaling` moves replicas by itself to the nodes of a pool,
    from a node that is overloaded or lost, and splits a shard that no move helps; the consistency
    manager decides. This command listens to the nodes for one window (`for` in the file) and a few
    seconds, and changes nothing.

    `busy` of a node is the sum of the shares of time in which the batches of its replicas ran, in
    cores. What no move can help is named below the tables. To move a replica yourself: `anabranch
    move`; what you move is not moved back.

    Exit codes: 0 shown, 1 no broker, 2 the file has no section `scaling`.

        anabranch scale

        anabranch scale --json | jq '.would'

        anabranch status --json | jq '.[].detail.scaling.events[]?'     # with how long each took
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.operating.scale import look
    from anabranch.pipeline.file import load

    named, address = file_and_broker(file, state_dir, kafka)
    pipeline = load(named)
    with WorkDisplay(Console(stderr=True), "listening to the nodes"):
        found = look(KafkaEventLog(address), pipeline, SystemClock())
    if as_json:
        would = [
            {"label": each.label, "target": each.target, "cause": each.cause.value}
            | {"because": each.because}
            for each in found.would
        ]
        typer.echo(json.dumps(found.shown | {"would": would}, indent=1))
        return
    print_whole(
        table(
            ("node", "", "state", "busy", "replica", "busy", "rows/s", "behind", ""), _rows(found)
        )
    )
    events = found.shown["events"][-_EVENTS_SHOWN:]
    if events:
        typer.echo("")
        print_whole(table(("decided", "replica", "from", "to", "cause", "why"), _events(events)))
    for line in _advice(found):
        typer.echo(line)


def _rows(found: LoadView) -> Iterator[Sequence[str]]:
    """Yield the rows of the nodes, each with its replicas."""
    for node, each in found.shown["nodes"].items():
        cores = (
            "-"
            if each["cores"] is None
            else f"{each['busy_permille'] / 1_000:.2f} of {each['cores']}"
        )
        state = "silent" if each["cores"] is None else each["state"]
        yield (node, "pool" if each["is_pool"] else "", state, cores, "", "", "", "", "")
        for load in each["replicas"]:
            yield (
                *("", "", "", ""),
                load["replica"],
                f"{load['busy_permille'] / 10:.0f} %",
                str(load["rows_per_s"]),
                readable_ms(load["behind_ms"]),
                "overloaded" if load["is_overloaded"] else "",
            )


def _events(events: Sequence[dict[str, Any]]) -> Iterator[Sequence[str]]:
    """Yield the rows of the decisions."""
    for each in events:
        yield (
            time_in_words(each["written_ms"]),
            each["label"],
            each["source"],
            each["target"],
            each["cause"],
            each["because"],
        )


def _advice(found: LoadView) -> Iterator[str]:
    """Yield what would be done, or what would help."""
    for action in found.would:
        yield f"would {action.in_words}: {action.because}"
    yield from (str(note) for note in found.shown["notes"].values())
    if not found.would and not found.shown["notes"]:
        yield "nothing is to be moved now"
