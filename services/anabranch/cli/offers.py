"""The command ``anabranch offers``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.options import File, pipeline_file
from anabranch.cli.tables import print_whole, table
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.pipeline.model import OfferedStage


def offers(
    file: File = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PARTICIPANT",
            help="Write the terms of the offers to this participant, as JSON.",
        ),
    ] = None,
) -> None:
    """List the stages that this participant offers to run for others, or write their terms.

    The code of such a stage stays here. A participant that wants to use the stage needs a file of
    its terms, which the participant's pipeline file names under `federation.offered`. Write that
    file with `--to`, and again after each change of an offer. No broker is needed.

        anabranch offers -f south.yaml

        anabranch offers -f south.yaml --to north > south.offers.json      # send this to north

    Exit codes: 0 done, 2 the pipeline file offers nothing, or nothing to that participant.
    """
    from anabranch.pipeline.file import load
    from anabranch.pipeline.offers import terms_for

    named = pipeline_file(file)
    federation = load(named).federation
    if federation is None or not federation.offers:
        raise ConfigurationError(
            f"{named} offers nothing: it has no federation.offers; write there what this"
            " participant runs for others (docs/federation.md)"
        )
    if to is not None:
        typer.echo(terms_for(federation, to), nl=False)
        return
    heads = ("offer", "version", "reads", "parameters", "gives", "rows/s", "to")
    print_whole(table(heads, [_row(offer) for offer in federation.offers.values()]))


def _row(offer: OfferedStage) -> tuple[str, ...]:
    """Return the table row of ``offer``."""
    terms = offer.terms
    return (
        offer.name,
        str(terms.version),
        ", ".join(terms.reads),
        "; ".join(f"{name}: {each.in_words()}" for name, each in terms.parameters.items()),
        ", ".join(terms.gives),
        str(terms.rows_per_s),
        "all" if offer.offered_to is None else ", ".join(offer.offered_to),
    )
