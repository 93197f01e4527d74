"""Options that several commands share, and their meaning: pipeline file, deployment, broker."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from anabranch.local import state_file
from anabranch.local.state_file import Deployment
from anabranch.protocol.errors import ConfigurationError

DEFAULT_FILE: Final = "pipeline.yaml"
KAFKA_VARIABLE: Final = "ANABRANCH_KAFKA"
STORE_VARIABLE: Final = "ANABRANCH_CHECKPOINT_STORE"
"""Environment variable from which nodes take the address of the checkpoint store."""

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
        help="The deployment's state (default: `.anabranch` next to the pipeline file).",
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
    """Return ``file``; None: the pipeline file in the current folder.

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
    """Fail unless Spark is installed.

    For commands that run Spark in a process of its own, whose failure to import it would be a
    traceback.

    Raises:
        ModuleNotFoundError: Spark is not installed.
    """
    if find_spec("pyspark") is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")


def deployment_of(file: Path | None, state_dir: Path | None) -> Deployment | None:
    """Return the last deployment of a pipeline file, or in a state directory; None: none."""
    return state_file.read(state_file.directory_of(state_dir, file))


def file_and_broker(
    file: Path | None, state_dir: Path | None, kafka: str | None
) -> tuple[Path, str]:
    """Return the pipeline file and the broker's address for a command on a deployment.

    An option that is not given is taken from the deployment.

    Raises:
        ConfigurationError: an option is not given, and there is no deployment.
    """
    known = deployment_of(file, state_dir)
    if known is None and kafka is None:
        stated = state_file.nothing_runs(state_file.directory_of(state_dir, file), file)
        raise ConfigurationError(f"{stated}; for one that runs elsewhere give --kafka")
    address = kafka if kafka is not None or known is None else known.kafka
    # Without -f the deployment's own file counts, so that --state-dir works in any folder.
    named = (
        file
        if file is not None
        else Path(known.pipeline)
        if known is not None
        else pipeline_file(None)
    )
    return named, address or ""
