"""The command ``anabranch market``."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated

import typer

from anabranch.cli.federation_options import AsJson, federation_of
from anabranch.cli.options import DeploymentFile, Kafka, StateDir
from anabranch.cli.tables import print_whole, table


def market(
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    as_json: AsJson = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show movements that are over, too.")
    ] = False,
) -> None:
    """Show the stages that run at other participants: where, since when, and at what price.

    `node` is the node that shall run the stage; it is another participant's if the stage was sold
    on. The price is in micro-units, for a unit of load and a second. With `--all` the table also
    has the stages that have come home: until when they ran, and why that ended. A second table has
    the queries that run elsewhere under a movement contract, with their plan; in JSON these have
    `plan` and `tasks`. Only contracts that you may see are listed.

        anabranch market

        anabranch market --all --json | jq '.[] | {task, run_by, price_micro, from, to}'

    Exit codes: 0 shown, 1 no broker, 2 wrong usage, or no federation in the pipeline file.
    """
    from anabranch.federation.tables import movements_of, plan_changes_of, read_book

    log, federation = federation_of(file, state_dir, kafka)
    with closing(read_book(log, federation)) as reader:
        rows = [row for row in movements_of(reader) if everything or row["to"] is None]
        plans = [row for row in plan_changes_of(reader) if everything or row["to"] is None]
    if as_json:
        typer.echo(json.dumps([*rows, *plans], indent=1))
        return
    if not rows and not plans:
        typer.echo("no load runs at another participant now", err=True)
    if rows:
        print_whole(
            table(
                (
                    "task",
                    "of",
                    "moved to",
                    "node",
                    "contract",
                    "units",
                    "price (micro)",
                    "from",
                    "to",
                ),
                [
                    (
                        row["task"],
                        row["of"],
                        row["moved_to"],
                        row["node"] or "",
                        row["contract"],
                        str(row["units"]),
                        str(row["price_micro"]),
                        row["from"],
                        f"{row['to']} ({row['why']})" if row["to"] else "",
                    )
                    for row in rows
                ],
            )
        )
    if plans:
        print_whole(
            table(
                ("tasks", "of", "moved to", "contract", "plan", "from", "to"),
                [
                    (
                        ", ".join(row["tasks"]),
                        row["of"],
                        row["moved_to"],
                        row["contract"],
                        str(row["plan"]),
                        row["from"],
                        f"{row['to']} ({row['why']})" if row["to"] else "",
                    )
                    for row in plans
                ],
            )
        )
