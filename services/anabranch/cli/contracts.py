"""The commands ``anabranch contracts ...``."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.federation_options import AsJson, KeyFile, federation_of, words_of
from anabranch.cli.options import DeploymentFile, Kafka, StateDir
from anabranch.cli.tables import print_whole, table

if TYPE_CHECKING:
    from anabranch.protocol.federation.contract_book import Change

app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")

ContractId = Annotated[str, typer.Argument(metavar="ID", help="As `anabranch contracts` shows it.")]


@app.callback()
def contracts(
    context: typer.Context,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    as_json: AsJson = False,
) -> None:
    """Show the contracts that you may see (their state, price and time, and who still has to sign);
    propose, sign and end your own.

    Under a contract for load the seller runs load of the buyer for a price. Load may move under one
    that is `active` and whose time has begun. Under a contract for a stream the buyer pays for what
    it reads. A movement contract has several plans of a query, and shows which is active. Contracts
    of others do not show, since you have no right on their topics.

        anabranch contracts

        anabranch contracts --json | jq '.[] | select(.state == "active") | .contract'

        anabranch contracts propose north-south.yaml       # at north

        anabranch contracts sign north-south               # at south

    Exit codes, here and below: 0 done, 1 no broker, 2 wrong usage, no federation in the pipeline
    file, or what would be written would not count.
    """
    if context.invoked_subcommand is not None:
        return
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.operating.contract_book import contracts_of, read_book

    log, federation = federation_of(file, state_dir, kafka)
    with closing(read_book(log, federation)) as reader:
        rows = contracts_of(reader, SystemClock().now_ms())
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    elif not rows:
        typer.echo(
            f"{federation.participant} sees no contracts in {federation.name}; a party begins with"
            " `anabranch contracts propose FILE`",
            err=True,
        )
    else:
        print_whole(_table(rows))
        for row in rows:
            for each in row["suggestions"]:
                typer.echo(_suggestion(row, each))
            if row["plans"] is not None:
                typer.echo(_plan(row))


def _table(rows: list[dict[str, Any]]) -> Any:
    return table(
        (
            "contract",
            "for",
            "version",
            "state",
            "buyer",
            "seller",
            "price (micro)",
            "valid",
            "waits for",
        ),
        [
            (
                row["contract"],
                row["for"],
                str(row["version"]),
                row["state"],
                row["buyer"],
                row["seller"],
                f"{row['price_lowest_micro']} to {row['price_highest_micro']}",
                f"{row['valid_from'][:10]} to {(row['ends'] or row['valid_to'])[:10]}",
                _waits_for(row),
            )
            for row in rows
        ],
    )


def _waits_for(row: dict[str, Any]) -> str:
    if row["waits_for_signature_of"]:
        return (
            f"{', '.join(row['waits_for_signature_of'])} to sign version {row['proposed_version']}"
        )
    return f"{', '.join(row['suspended_by'])} to resume it" if row["suspended_by"] else ""


def _plan(row: dict[str, Any]) -> str:
    plans = row["plans"]
    at_sender = ", ".join(plans["at_sender"])
    where = f"{at_sender} at {row['seller']}" if at_sender else f"all at {row['buyer']}"
    found = f"{row['contract']}: plan {plans['active']} since {plans['since']}, {where}"
    if plans["state"] == "proposed":
        return f"{found}; {plans['proposed_by']} proposes plan {plans['proposed']}"
    if plans["state"] == "switching":
        return f"{found}; both have agreed to plan {plans['proposed']}"
    return f"{found}; cancelled" if plans["state"] == "cancelled" else found


def _suggestion(row: dict[str, Any], each: dict[str, Any]) -> str:
    judged = {None: "nothing is settled yet to compare it by", True: "it costs less"}
    return (
        f"{row['contract']}: {row['seller']} suggests {each['stream']} instead, as"
        f" {each['contract']}, until {each['open_until'][:10]};"
        f" {judged.get(each['worth_taking'], 'not worth taking')}"
    )


@app.command()
def terms(
    stream: Annotated[
        bool, typer.Option("--stream", help="Of a contract for a stream, instead of load.")
    ] = False,
    plans: Annotated[
        bool, typer.Option("--plans", help="Of a movement contract: plans of a query.")
    ] = False,
) -> None:
    """Print the terms of a contract, as a file to begin with. All of them are needed.

    anabranch contracts terms > north-south.yaml

    anabranch contracts terms --stream > north-billing.yaml

    anabranch contracts terms --plans > north-billing-plans.yaml
    """
    from anabranch.pipeline.content_file import CONTENT_EXAMPLE
    from anabranch.pipeline.contract_file import EXAMPLE
    from anabranch.pipeline.plan_file import PLANS_EXAMPLE

    of_streams = PLANS_EXAMPLE if plans else CONTENT_EXAMPLE
    typer.echo(of_streams if plans or stream else EXAMPLE, nl=False)


@app.command()
def propose(
    path: Annotated[Path, typer.Argument(metavar="TERMS", help="The YAML file of the terms.")],
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Sign the terms in a file and offer them to the other side.

    Nothing is agreed until the other side signs the same. Until then you may propose other terms,
    or `withdraw` them. A text that both have signed is followed by one with the next `version`.

        anabranch contracts terms > north-south.yaml       # to begin with

        anabranch contracts propose north-south.yaml
    """
    from anabranch.pipeline.plan_file import load_terms

    text = load_terms(path)
    words = words_of(file, state_dir, kafka, key)
    words.propose(text)
    other = text.seller if words.participant == text.buyer else text.buyer
    typer.echo(
        f"{text.contract_id}: version {text.version} is proposed; {other} agrees with"
        f" `anabranch contracts sign {text.contract_id}`"
    )


@app.command()
def sign(
    contract_id: ContractId,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Sign what the other side has proposed: from now on it binds both.

    Read it first: `proposed_terms` of `anabranch contracts --json`. What is signed is what stands
    there when the command is given.

        anabranch contracts --json | jq '.[] | select(.contract == "north-south").proposed_terms'

        anabranch contracts sign north-south --key south.key
    """
    text = words_of(file, state_dir, kafka, key).sign(contract_id)
    typer.echo(f"{contract_id}: version {text.version} is signed by both")


@app.command()
def withdraw(
    contract_id: ContractId,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Take back what you have proposed and the other side has not signed.

    anabranch contracts withdraw north-south
    """
    words_of(file, state_dir, kafka, key).change(contract_id, _change("withdrawn"))
    typer.echo(f"{contract_id}: the proposal is withdrawn")


@app.command()
def suspend(
    contract_id: ContractId,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """No new load moves under the contract until you `resume` it; what has moved goes on. Of a
    stream nothing is due for whole periods until then. A query of a movement contract goes home.

        anabranch contracts suspend north-south
    """
    state = words_of(file, state_dir, kafka, key).change(contract_id, _change("suspended"))
    typer.echo(f"{contract_id}: {state}")


@app.command()
def resume(
    contract_id: ContractId,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Take a suspension of yours back; one of the other side stays.

    anabranch contracts resume north-south
    """
    state = words_of(file, state_dir, kafka, key).change(contract_id, _change("resumed"))
    typer.echo(f"{contract_id}: {state}")


@app.command()
def notice(
    contract_id: ContractId,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """End the contract: nothing new moves, and what has moved comes home within its notice and
    drain time. This cannot be taken back.

        anabranch contracts notice north-south
    """
    state = words_of(file, state_dir, kafka, key).change(contract_id, _change("notice"))
    typer.echo(f"{contract_id}: {state}")


@app.command()
def cancel(
    contract_id: ContractId,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Leave all plans of a movement contract but the plain one, for good: the query runs at its
    owner, which pays for the stream that it reads until the contract ends.

        anabranch contracts cancel north-billing-plans
    """
    words_of(file, state_dir, kafka, key).cancel(contract_id)
    typer.echo(f"{contract_id}: cancelled; the plain plan applies")


@app.command()
def suggest(
    contract_id: ContractId,
    path: Annotated[Path, typer.Argument(metavar="TERMS", help="The YAML file of the terms.")],
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
    open_for: Annotated[
        str, typer.Option("--open-for", metavar="DURATION", help="So long it may be taken.")
    ] = "7d",
) -> None:
    """Suggest to the receiver of your stream to take it elsewhere: the contract that it would sign
    there, instead of contract ID.

    It binds nobody. The receiver sees it with `anabranch contracts`, and whether it would cost
    less; it then proposes such terms to the other sender, and gives you notice.

        anabranch contracts suggest north-billing south-billing.yaml
    """
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.pipeline.content_file import load_content
    from anabranch.pipeline.durations import parse_ms
    from anabranch.protocol.errors import ConfigurationError

    try:
        until_ms = SystemClock().now_ms() + parse_ms(open_for)
    except ValueError as error:
        raise ConfigurationError(f"--open-for {open_for}: {error}") from error
    words_of(file, state_dir, kafka, key).suggest(contract_id, load_content(path), until_ms)
    typer.echo(f"{contract_id}: the suggestion stands for {open_for}")


def _change(name: str) -> Change:
    from anabranch.protocol.federation.contract_book import Change

    return Change(name)
