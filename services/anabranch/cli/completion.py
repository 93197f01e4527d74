"""Shell completion of arguments: names of sources, outputs and processes.

Where the pipeline file or the deployment cannot be read there are no suggestions: an error message
would be printed into the line that the user types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from anabranch.cli.options import deployment_of, pipeline_file
from anabranch.protocol.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline


def sources(context: typer.Context, incomplete: str) -> list[str]:
    """Return the pipeline's sources whose names begin with ``incomplete``."""
    pipeline = _pipeline(context)
    return (
        []
        if pipeline is None
        else [name for name in pipeline.sources if name.startswith(incomplete)]
    )


def stages(context: typer.Context, incomplete: str) -> list[str]:
    """Return the stages of the pipeline file."""
    pipeline = _pipeline(context)
    return (
        []
        if pipeline is None
        else [name for name in pipeline.stages if name.startswith(incomplete)]
    )


def streams(context: typer.Context, incomplete: str) -> list[str]:
    """Return the sources, stages and bindings of the pipeline file."""
    pipeline = _pipeline(context)
    if pipeline is None:
        return []
    known = [*pipeline.sources, *pipeline.unsplit().stages, *pipeline.bindings]
    return [name for name in known if name.startswith(incomplete)]


def outputs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the pipeline's outputs whose names begin with ``incomplete``."""
    pipeline = _pipeline(context)
    return (
        []
        if pipeline is None
        else [name for name in pipeline.outputs if name.startswith(incomplete)]
    )


def outputs_and_sources(context: typer.Context, incomplete: str) -> list[str]:
    """Return the matching outputs and, with ``--rejected``, also the matching sources."""
    rejecting = sources(context, incomplete) if context.params.get("rejected") else []
    return [*outputs(context, incomplete), *rejecting]


def processes(context: typer.Context, incomplete: str) -> list[str]:
    """Return SERVICE/NAME of the deployment's processes that begin with ``incomplete``."""
    known = deployment_of(context.params.get("file"), context.params.get("state_dir"))
    labels = [] if known is None else [f"{row.service}/{row.name}" for row in known.processes]
    return [label for label in labels if label.startswith(incomplete)]


def _pipeline(context: typer.Context) -> Pipeline | None:
    """Load the pipeline file of the command line; None: it cannot be loaded."""
    from anabranch.pipeline.file import load

    try:
        return load(pipeline_file(context.params.get("file")))
    except AnabranchError:
        return None
