"""The command ``anabranch ui``."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from anabranch.cli.options import DeploymentFile, Kafka, StateDir, deployment_of, pipeline_file
from anabranch.cli.signals import stop_events
from anabranch.local import state_file
from anabranch.protocol.errors import ConfigurationError

PORT: Final = 9180
_NEEDED: Final = ("starlette", "uvicorn")


def ui(
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Beyond loopback a token is needed.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port; 0: any free one, which is printed.")
    ] = PORT,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="ANABRANCH_UI_TOKEN",
            help=(
                "The password of the page: browsers ask for it, programs send it as `Authorization:"
                " Bearer TOKEN`. Default: none on loopback, else a random one, which is printed."
                " Other users of the machine see options, so set the variable instead."
            ),
        ),
    ] = None,
    process: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVICE/NAME=HOST:PORT",
            help=(
                "The metrics address of a process that `anabranch up` does not run here; repeat it"
                " for each process."
            ),
        ),
    ] = None,
) -> None:
    """Serve a page that shows the pipeline as it runs: the graph and its states, the last minutes
    of each stream, delays, dead letters, the market. The page is read-only, and served until
    Ctrl-C.

    Open the printed address in a browser.

        anabranch ui

        ANABRANCH_UI_TOKEN=secret anabranch ui --host 0.0.0.0 --port 8080

        anabranch ui -f pipeline.yaml --kafka broker-1:9092 --process delivery/tolls=10.0.0.7:9100
    """
    for name in _NEEDED:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    from anabranch.dashboard.serving import address_of, connection, serve, token_for
    from anabranch.pipeline.file import load

    known = deployment_of(file, state_dir)
    named = Path(known.pipeline) if file is None and known is not None else pipeline_file(file)
    directory = state_file.directory_of(state_dir, named)
    addresses = dict(_address(each) for each in process or ())
    needed = token_for(host, token)
    if needed is not None and not token:
        typer.echo(f"token: {needed}")
    with stop_events() as (stopping, _):
        serve(
            load(named),
            connection(address_of(directory, kafka)),
            state_dir=directory,
            processes=addresses,
            host=host,
            port=port,
            token=needed,
            say=_print_at_once,
            stopping=stopping,
        )


def _address(text: str) -> tuple[str, tuple[str, int]]:
    """Split an argument of ``--process`` into the process's label and its (host, port)."""
    label, equals, address = text.partition("=")
    host, colon, port = address.rpartition(":")
    if not (equals and colon and "/" in label and host and port.isdecimal()):
        raise ConfigurationError(f"--process {text}: give it as SERVICE/NAME=HOST:PORT")
    return label, (host, int(port))


def _print_at_once(text: str) -> None:
    """Print a line without buffering: a script that started the page waits for its address."""
    typer.echo(text)
    sys.stdout.flush()
