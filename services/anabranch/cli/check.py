"""``anabranch check``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from anabranch.cli.options import File, Offers, need_spark, pipeline_file
from anabranch.cli.work_display import run_shown


def check(
    file: File = None,
    offers: Offers = None,
    no_plan: Annotated[
        bool,
        typer.Option(
            "--no-plan",
            help="Check the file only; do not start Spark to look at the stages' plans.",
        ),
    ] = False,
) -> None:
    """Look for mistakes in a pipeline file and in the functions that it names, without running it.

    Every mistake is one line: `FILE:LINE: key: what; how to fix`. Exit code 2 if there is any.

        anabranch check

        anabranch check -f elsewhere/pipeline.yaml --no-plan

        anabranch check -f north.yaml --offers south.yaml    # at south, which north's file names
    """
    from anabranch.pipeline.file import load

    named = pipeline_file(file)
    pipeline = load(named, offers)
    bound = f" {len(pipeline.bindings)} bindings," if pipeline.bindings else ""
    typer.echo(
        f"{named}: pipeline {pipeline.name}: {len(pipeline.sources)} sources,{bound}"
        f" {len(pipeline.stages)} stages, {len(pipeline.outputs)} outputs"
    )
    if no_plan:
        return
    need_spark()
    # In a process of its own: it starts Spark and imports the user's code, and what starts services
    # does not import them.
    files = [str(path) for path in (named, offers) if path is not None]
    code = run_shown(
        [sys.executable, "-m", "anabranch.processing.check", *files],
        "starting Spark and looking at the stages' plans",
    )
    if code != 0:
        raise typer.Exit(2 if code == 2 else 1)
