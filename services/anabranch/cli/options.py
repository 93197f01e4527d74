"""Options that several commands take, and what they mean: which pipeline file, which
deployment, which broker.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from anabranch.protocol.errors import ConfigurationError
from anabranch.up import state_file
from anabranch.up.state_file import Deployment

DEFAULT_FILE: Final = "pipeline.yaml"
KAFKA_VARIABLE: Final = "ANABRANCH_KAFKA"

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help=f"The pipeline file (default: `{DEFAULT_FILE}` in the current folder).",
    ),
]
DeploymentFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help=(
            f"The pipeline file (default: that of --state-dir, or `{DEFAULT_FILE}` in the current"
            " folder)."
        ),
    ),
]
Offers = Annotated[
    Path | None,
    typer.Option(
        "--offers",
        metavar="OWN",
        help=(
            "For a participant that offers stages: its own pipeline file, which names their code,"
            " while `-f` names the file of the participant that uses them."
        ),
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Where its state is kept (default: `.anabranch` next to the pipeline file).",
    ),
]
Kafka = Annotated[
    str | None,
    typer.Option(
        metavar="ADDR",
        envvar=KAFKA_VARIABLE,
        help="The broker, HOST:PORT (default: that of the running deployment).",
    ),
]
Replication = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=7,
        help=(
            "Copies of each topic that is created (default: the cluster's own default; 1 on the"
            " embedded broker). Use 3 where nothing may be lost."
        ),
    ),
]


def pipeline_file(file: Path | None) -> Path:
    """The pipeline file that a command means.

    Raises:
        ConfigurationError: none is named, and there is none in the current folder.
    """
    if file is not None:
        return file
    if not Path(DEFAULT_FILE).exists():
        raise ConfigurationError(
            f"there is no {DEFAULT_FILE} in {Path.cwd()}: go to its folder, or name the file with"
            " -f FILE"
        )
    return Path(DEFAULT_FILE)


def need_spark() -> None:
    """For what runs Spark in a process of its own.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    if find_spec("pyspark") is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")


def deployment_of(file: Path | None, state_dir: Path | None) -> Deployment | None:
    """What was last run of a pipeline file, or in a state directory; None: nothing."""
    return state_file.read(state_file.directory_of(state_dir, file))


def file_and_broker(
    file: Path | None, state_dir: Path | None, kafka: str | None
) -> tuple[Path, str]:
    """The pipeline file and the address of the broker that a command on a deployment means; what is
    not given is that of the deployment.

    Raises:
        ConfigurationError: nothing runs there that would tell what is not given.
    """
    known = deployment_of(file, state_dir)
    if known is None and kafka is None:
        stated = state_file.nothing_runs(state_file.directory_of(state_dir, file))
        raise ConfigurationError(f"{stated}; for one that runs elsewhere give --kafka")
    address = kafka if kafka is not None or known is None else known.kafka
    # With a state directory and no file the deployment itself tells its file, wherever the command
    # is given.
    named = (
        file
        if file is not None
        else Path(known.pipeline)
        if known is not None
        else pipeline_file(None)
    )
    return named, address or ""
