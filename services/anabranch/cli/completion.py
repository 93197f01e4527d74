"""Names that a shell offers for arguments. Where the file or the deployment cannot be read it
offers none: a shell is no place for errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from anabranch.cli.options import deployment_of, pipeline_file
from anabranch.protocol.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline


def sources(context: typer.Context, incomplete: str) -> list[str]:
    """Of the pipeline file."""
    pipeline = _pipeline(context)
    return (
        []
        if pipeline is None
        else [name for name in pipeline.sources if name.startswith(incomplete)]
    )


def outputs(context: typer.Context, incomplete: str) -> list[str]:
    """Of the pipeline file."""
    pipeline = _pipeline(context)
    return (
        []
        if pipeline is None
        else [name for name in pipeline.outputs if name.startswith(incomplete)]
    )


def outputs_and_sources(context: typer.Context, incomplete: str) -> list[str]:
    """Of the pipeline file; sources only with ``--rejected``."""
    of_sources = sources(context, incomplete) if context.params.get("rejected") else []
    return [*outputs(context, incomplete), *of_sources]


def processes(context: typer.Context, incomplete: str) -> list[str]:
    """SERVICE/NAME of each process of the deployment."""
    known = deployment_of(context.params.get("file"), context.params.get("state_dir"))
    labels = [] if known is None else [f"{row.service}/{row.name}" for row in known.processes]
    return [label for label in labels if label.startswith(incomplete)]


def _pipeline(context: typer.Context) -> Pipeline | None:
    from anabranch.pipeline.file import load

    try:
        return load(pipeline_file(context.params.get("file")))
    except AnabranchError:
        return None
