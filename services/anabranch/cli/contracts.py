"""The commands ``anabranch contracts ...``."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.federation_options import AsJson, KeyFile, commands_of, federation_of
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
    """Show the contracts that you may see, with their state, price, time and missing signatures;
    propose, sign and end your own.

    Under a contract for load the seller runs load of the buyer for a price. Load may move under a
    contract that is `active` and whose time has begun. Under a contract for a stream the buyer pays
    for what it reads. A movement contract has several plans of a query, of which one is active.
    Contracts of others are not shown, because you have no right on their topics.

        anabranch contracts

        anabranch contracts --json | jq '.[] | select(.state == "active") | .contract'

        anabranch contracts propose north-south.yaml       # at north

        anabranch contracts sign north-south               # at south

    Exit codes, here and below: 0 done, 1 no broker, 2 wrong usage, no federation in the pipeline
    file, or readers would reject the record, which is then not written.
    """
    if context.invoked_subcommand is not None:
        return
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.federation.tables import contracts_of, read_book

    log, federation = federation_of(file, state_dir, kafka)
    with closing(read_book(log, federation)) as reader:
        rows, left_out = contracts_of(reader, SystemClock().now_ms()), reader.left_out
    for topic, why in left_out.items():
        typer.echo(f"topic {topic} is ignored: {why}", err=True)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    elif not rows:
        typer.echo(
            f"{federation.participant} sees no contracts in {federation.name}; to begin one:"
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
    """Return the table of the contracts in ``rows``."""
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
    """Return what a contract waits for; empty: for nothing."""
    if row["waits_for_signature_of"]:
        return (
            f"{', '.join(row['waits_for_signature_of'])} to sign version {row['proposed_version']}"
        )
    return f"{', '.join(row['suspended_by'])} to resume it" if row["suspended_by"] else ""


def _plan(row: dict[str, Any]) -> str:
    """Return a line about the active and the proposed plan of a movement contract."""
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
    """Return a line about one suggestion of a contract's sender."""
    judged = {None: "no period is settled yet to compare it with", True: "it costs less"}
    return (
        f"{row['contract']}: {row['seller']} suggests {each['stream']} instead, as"
        f" {each['contract']}, until {each['open_until'][:10]};"
        f" {judged.get(each['worth_taking'], 'not worth taking')}"
    )


@app.command()
def terms(
    stream: Annotated[
        bool, typer.Option("--stream", help="For a contract for a stream, instead of load.")
    ] = False,
    plans: Annotated[
        bool, typer.Option("--plans", help="For a movement contract: plans of a query.")
    ] = False,
) -> None:
    """Print an example of a contract's terms, as a file to begin with. All terms are needed.

    anabranch contracts terms > north-south.yaml

    anabranch contracts terms --stream > north-billing.yaml

    anabranch contracts terms --plans > north-billing-plans.yaml
    """
    from anabranch.federation.contract_file import EXAMPLE
    from anabranch.federation.stream_file import PLANS_EXAMPLE, STREAM_EXAMPLE

    stream_example = PLANS_EXAMPLE if plans else STREAM_EXAMPLE
    typer.echo(stream_example if plans or stream else EXAMPLE, nl=False)


@app.command()
def propose(
    path: Annotated[Path, typer.Argument(metavar="TERMS", help="The YAML file of the terms.")],
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Sign the terms in a file and offer them to the other side.

    Nothing is agreed until the other side signs the same terms. Until then you may propose other
    terms, or `withdraw` them. To change terms that both sides have signed, propose new ones with
    the next `version`.

        anabranch contracts terms > north-south.yaml       # to begin with

        anabranch contracts propose north-south.yaml
    """
    from anabranch.federation.stream_file import load_terms

    text = load_terms(path)
    commands = commands_of(file, state_dir, kafka, key)
    commands.propose(text)
    other = text.seller if commands.participant == text.buyer else text.buyer
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
    """Sign the terms that the other side has proposed: from now on they bind both sides.

    Read them first: `proposed_terms` of `anabranch contracts --json`. The command signs the terms
    that are proposed at the time at which you give it.

        anabranch contracts --json | jq '.[] | select(.contract == "north-south").proposed_terms'

        anabranch contracts sign north-south --key south.key
    """
    text = commands_of(file, state_dir, kafka, key).sign(contract_id)
    typer.echo(f"{contract_id}: version {text.version} is signed by both sides")


@app.command()
def withdraw(
    contract_id: ContractId,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Withdraw terms that you have proposed and the other side has not signed.

    anabranch contracts withdraw north-south
    """
    commands_of(file, state_dir, kafka, key).change(contract_id, _change("withdrawn"))
    typer.echo(f"{contract_id}: the proposal is withdrawn")


@app.command()
def suspend(
    contract_id: ContractId,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Suspend a contract until you `resume` it: no new load moves under it, and load that has moved
    stays. Under a contract for a stream nothing is due for whole periods of the suspension. The
    query of a movement contract returns to its owner.

        anabranch contracts suspend north-south
    """
    state = commands_of(file, state_dir, kafka, key).change(contract_id, _change("suspended"))
    typer.echo(f"{contract_id}: {state}")


@app.command()
def resume(
    contract_id: ContractId,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """End your suspension of a contract. A suspension by the other side remains.

    anabranch contracts resume north-south
    """
    state = commands_of(file, state_dir, kafka, key).change(contract_id, _change("resumed"))
    typer.echo(f"{contract_id}: {state}")


@app.command()
def notice(
    contract_id: ContractId,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """End a contract: no new load moves under it, and load that has moved comes home within the
    contract's notice and drain time. This cannot be undone.

        anabranch contracts notice north-south
    """
    state = commands_of(file, state_dir, kafka, key).change(contract_id, _change("notice"))
    typer.echo(f"{contract_id}: {state}")


@app.command()
def cancel(
    contract_id: ContractId,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    key: KeyFile = None,
) -> None:
    """Return a movement contract to its plain plan, for good: the query runs at its owner, which
    pays for the stream that it reads until the contract ends.

        anabranch contracts cancel north-billing-plans
    """
    commands_of(file, state_dir, kafka, key).cancel(contract_id)
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
        str, typer.Option("--open-for", metavar="DURATION", help="How long it stays open.")
    ] = "7d",
) -> None:
    """Suggest to the receiver of your stream another sender: with the terms of the contract that it
    would sign there, instead of contract ID.

    A suggestion binds nobody. The receiver sees it with `anabranch contracts`, and whether it would
    cost less. A receiver that follows it proposes such terms to the other sender, and gives you
    notice.

        anabranch contracts suggest north-billing south-billing.yaml
    """
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.federation.stream_file import load_terms
    from anabranch.pipeline.durations import parse_ms
    from anabranch.protocol.errors import ConfigurationError

    try:
        until_ms = SystemClock().now_ms() + parse_ms(open_for)
    except ValueError as error:
        raise ConfigurationError(f"--open-for {open_for}: {error}") from error
    commands_of(file, state_dir, kafka, key).suggest(contract_id, load_terms(path), until_ms)
    typer.echo(f"{contract_id}: the suggestion is open for {open_for}")


def _change(name: str) -> Change:
    """Return the change of that name. Imports it late: ``--help`` must not wait for it."""
    from anabranch.protocol.federation.contract_book import Change

    return Change(name)
