"""``anabranch market``."""

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
        bool, typer.Option("--all", help="Movements that are over, too.")
    ] = False,
) -> None:
    """Show which load has moved to other participants: who runs what, from when, at what price.

    `node` is where it is to run: another participant's if it was sold on. The price is in
    micro-units, for a unit of load and a second. With `--all` also what has come home: until when
    it ran, and why it ended. Queries that run elsewhere under a movement contract are below, with
    their plan; in JSON they have `plan` and `tasks`. Only contracts that you may see.

        anabranch market

        anabranch market --all --json | jq '.[] | {task, run_by, price_micro, from, to}'

    Exit codes: 0 shown, 1 no broker, 2 wrong usage, or no federation in the pipeline file.
    """
    from anabranch.operating.contract_book import movements_of, plan_changes_of, read_book

    log, federation = federation_of(file, state_dir, kafka)
    with closing(read_book(log, federation)) as reader:
        rows = [row for row in movements_of(reader) if everything or row["to"] is None]
        plans = [row for row in plan_changes_of(reader) if everything or row["to"] is None]
    if as_json:
        typer.echo(json.dumps([*rows, *plans], indent=1))
        return
    if not rows and not plans:
        typer.echo("no load has moved that is not home again", err=True)
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
