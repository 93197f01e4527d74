"""The command ``anabranch ledger``."""

from __future__ import annotations

import json
from contextlib import closing

import typer

from anabranch.cli.federation_options import AsJson, federation_of
from anabranch.cli.options import DeploymentFile, Kafka, StateDir
from anabranch.cli.tables import print_whole, table
from anabranch.protocol.errors import AnabranchError


def ledger(
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    as_json: AsJson = False,
) -> None:
    """Show which participant has paid which how much, under the contracts that you may see: settled
    periods, penalties, amounts due but not settled yet, and disputes.

    One participant receives what another pays, so the balances sum up to zero. With `--json`
    amounts are whole thousandths of a micro-unit; without it they are in units.

        anabranch ledger

        anabranch ledger --json | jq .balances_nano

    Exit codes: 0 shown, 1 no broker, or the balances do not sum up to zero, 2 wrong usage, or no
    federation in the pipeline file.
    """
    from anabranch.federation.tables import amount_in_words, ledgers_of, read_book

    log, federation = federation_of(file, state_dir, kafka)
    with closing(read_book(log, federation)) as reader:
        found = ledgers_of(reader)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        postings = [
            (each["contract"], posting["payer"], posting["payee"], posting)
            for each in found["contracts"]
            for posting in each["postings"]
        ]
        if postings:
            print_whole(
                table(
                    ("contract", "from", "to", "amount", "for"),
                    [
                        (name, payer, payee, amount_in_words(each["amount_nano"]), each["reason"])
                        for name, payer, payee, each in postings
                    ],
                )
            )
            typer.echo()
        print_whole(
            table(
                ("participant", "balance"),
                [
                    *((who, amount_in_words(nano)) for who, nano in found["balances_nano"].items()),
                    ("sum", amount_in_words(found["sum_nano"])),
                ],
            )
        )
        for each in found["contracts"]:
            if each["unsettled_nano"]:
                due = amount_in_words(each["unsettled_nano"])
                typer.echo(f"{each['contract']}: {due} is due and not settled yet")
            if each["postings_before"]:
                typer.echo(
                    f"{each['contract']}: {each['postings_before']:,} older amounts are not listed"
                )
            if each["disputes"]:
                typer.echo(f"{each['contract']}: {each['disputes']} measurements in dispute")
        for topic, why in found["left_out"].items():
            typer.echo(f"topic {topic} is ignored: {why}")
        if ignored := sum(found["ignored"].values()):
            typer.echo(f"{ignored} records changed nothing (--json says why)")
    if found["sum_nano"]:
        raise AnabranchError(
            f"the balances sum up to {amount_in_words(found['sum_nano'])} instead of 0: an amount"
            " was counted for one side only, which no record can cause; pay nothing by this ledger,"
            " and report it with the output of `anabranch ledger --json`"
        )
