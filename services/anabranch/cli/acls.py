"""The command ``anabranch acls``: the rights of every principal, as a table, as JSON, or as shell
commands that set them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain, groupby
from typing import Annotated, Final

import typer

from anabranch.access.federation_acls import federation_rights
from anabranch.access.link_shares import LinkShare, link_shares
from anabranch.access.pipeline_acls import Resource, Right, rights
from anabranch.cli.options import File, pipeline_file
from anabranch.pipeline.document import guess
from anabranch.pipeline.file import load
from anabranch.pipeline.topic_names import index_prefix
from anabranch.protocol.errors import ConfigurationError

Prefix = Annotated[
    str | None,
    typer.Option(
        "--principal-prefix",
        metavar="TEXT",
        help="Before each principal's name (default: the pipeline's name and a dot).",
    ),
]
ByParticipant = Annotated[
    bool,
    typer.Option(
        "--by-participant",
        help=(
            "One principal for all nodes of a participant, instead of one for each node: needed"
            " where replicas move. Each of its nodes may then write what the others write."
        ),
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="A JSON list of objects, one per right.")]
AsRedis = Annotated[
    bool,
    typer.Option(
        "--redis",
        help="The user of Redis instead, as a line for its ACL file, to which you add a password.",
    ),
]
AsCommands = Annotated[
    bool,
    typer.Option("--commands", help="Shell commands for kafka-acls.sh, which comes with Kafka."),
]
Contracts = Annotated[
    list[str] | None,
    typer.Option(
        "--contract",
        metavar="ID",
        help="A contract of this participant, whose topics it needs; may be given several times.",
    ),
]

OnCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help=(
            "Only the rights on this cluster of those that the file names, for its owner to grant."
            " Without this option `--commands` are for the pipeline's own cluster."
        ),
    ),
]

Link = Annotated[
    str | None,
    typer.Option(
        "--link",
        metavar="RATE",
        help=(
            "Also list the quotas by which the streams that are read share a link of so many bytes"
            " per second, as 40m."
        ),
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weight",
        metavar="STREAM=N",
        help="Weight of a stream on the link (default: 1); may be given several times.",
    ),
]

_BROKER_PREFIX: Final = "User:"


def acls(
    file: File = None,
    prefix: Prefix = None,
    by_participant: ByParticipant = False,
    as_json: AsJson = False,
    as_commands: AsCommands = False,
    as_redis: AsRedis = False,
    contracts: Contracts = None,
    cluster: OnCluster = None,
    link: Link = None,
    weights: Weights = None,
) -> None:
    """List the rights (ACLs) on Kafka that each process, user and operator of a pipeline needs, and
    no more.

    For a broker with access control, before the first `up` and after each change of the file. A
    principal is a SCRAM user or the name in a certificate. The principals, and how to set them up:
    docs/security.md. The command needs no broker.

        anabranch acls

        anabranch acls --contract north-south --contract north-east

        anabranch acls --cluster south --commands >for-south.sh

        anabranch acls --cluster south --link 8m --weight south_speeds=3 --commands >for-south.sh

        anabranch acls --commands >acls.sh; BROKERS=b:9093 ADMIN_CONFIG=admin.properties sh acls.sh

    Exit codes: 0 listed, 2 wrong usage, or a mistake in the pipeline file.
    """
    if as_json + as_commands + as_redis > 1:
        raise ConfigurationError("--json, --commands, --redis: give one of them")
    if prefix is not None and not all(
        character.isalnum() or character in "._-" for character in prefix
    ):
        raise ConfigurationError(
            f"--principal-prefix {prefix!r}: use letters, digits, '.', '_' and '-'"
        )
    if link is None and weights:
        raise ConfigurationError("--weight: give the rate of the link, too: --link 40m")
    if link is not None and (as_json or as_redis):
        raise ConfigurationError("--link: quotas are listed as a table or as --commands")
    pipeline = load(pipeline_file(file))
    if as_redis:
        typer.echo(
            redis_user(
                pipeline.name,
                f"{f'{pipeline.name}.' if prefix is None else prefix}consistency_manager",
            )
        )
        return
    if contracts and pipeline.federation is None:
        raise ConfigurationError(
            f"--contract: {pipeline.path} names no federation, so it has no contracts: leave the"
            " option out"
        )
    # Both lists have the consumer group that all readers name; it is listed once.
    found = list(
        dict.fromkeys(
            (
                *rights(pipeline, prefix=prefix, by_participant=by_participant),
                *federation_rights(pipeline, contracts or [], prefix=prefix),
            )
        )
    )
    if cluster is not None and cluster not in pipeline.clusters:
        raise ConfigurationError(
            f"--cluster {cluster}: {guess(cluster, list(pipeline.clusters))} in {pipeline.path}"
        )
    if cluster is not None or as_commands:
        found = [right for right in found if right.cluster == (cluster or "")]
    if as_json:
        typer.echo(json.dumps([asdict(right) for right in found], indent=1))
        return
    shares = [] if link is None else link_shares(pipeline, cluster or "", link, weights or [])
    if as_commands:
        lines = chain(commands(found), quota_commands(shares))
    else:
        lines = chain(table(found), quota_table(shares))
    for line in lines:
        typer.echo(line)


def redis_user(pipeline: str, user: str) -> str:
    """Return the line of Redis's ACL file for its only user, the consistency manager.

    It allows the pipeline's keys and the commands that the index uses. Redis cannot limit SCAN to
    keys: on a server that others share, the manager can list the names of their keys, but not read
    their contents.
    """
    return (
        f"user {user} on resetkeys ~{index_prefix(pipeline)}* resetchannels -@all"
        f" {' '.join(_REDIS_COMMANDS)}"
    )


_REDIS_COMMANDS: Final = (
    "+del",
    "+hset",
    "+pexpire",
    "+scan",
    "+multi",
    "+exec",
    "+ping",
    "+select",
    "+client|setname",
    "+client|setinfo",
)


def table(found: list[Right]) -> Iterator[str]:
    """Yield the lines of a table of the rights ``found``, by cluster and principal."""
    width = max(len(right.name) for right in found)
    for (cluster, principal), own in groupby(
        _by_principal(found), key=lambda right: (right.cluster, right.principal)
    ):
        yield f"{principal}, on cluster {cluster}" if cluster else principal
        for (_, resource, name, prefixed, why), same in groupby(own, key=_target):
            operations = " ".join(right.operation.value for right in same)
            yield (
                f"  {resource.value:<16}  {name + ('*' if prefixed else ''):<{width + 1}} "
                f" {operations:<22}  {why}"
            )


def commands(found: list[Right]) -> Iterator[str]:
    """Yield the lines of a shell script: one call of kafka-acls.sh per principal and resource."""
    yield (
        "# Set BROKERS (host:port,...) and ADMIN_CONFIG (client settings of a super user);"
        " kafka-acls.sh must be on the path."
    )
    yield "set -eu"
    for (principal, (_, resource, name, prefixed, _)), same in groupby(
        _by_principal(found), key=lambda right: (right.principal, _target(right))
    ):
        words = [
            "--add",
            "--allow-principal",
            f"{_BROKER_PREFIX}{principal}",
            f"--{_OPTIONS[resource]}",
            name,
        ]
        words += ["--resource-pattern-type", "prefixed" if prefixed else "literal"]
        for right in same:
            words += ["--operation", right.operation.value]
        yield (
            'kafka-acls.sh --bootstrap-server "$BROKERS" --command-config "$ADMIN_CONFIG"'
            f" {shlex.join(words)}"
        )


def quota_table(shares: Sequence[LinkShare]) -> Iterator[str]:
    """Yield the lines of a table of quotas, for people."""
    if not shares:
        return
    yield "readers of blocks, by Kafka client id"
    width = max(len(share.client_id) for share in shares)
    for share in shares:
        yield (
            f"  client  {share.client_id:<{width}}  consumer_byte_rate={share.bytes_per_s}"
            f"  weight {share.weight} of {sum(each.weight for each in shares)}"
        )


def quota_commands(shares: Sequence[LinkShare]) -> Iterator[str]:
    """Yield the lines of a shell script: one call of kafka-configs.sh per stream."""
    if shares:
        yield "# kafka-configs.sh must be on the path, too."
    for share in shares:
        words = ["--alter", "--add-config", f"consumer_byte_rate={share.bytes_per_s}"]
        words += ["--entity-type", "clients", "--entity-name", share.client_id]
        yield (
            'kafka-configs.sh --bootstrap-server "$BROKERS" --command-config "$ADMIN_CONFIG"'
            f" {shlex.join(words)}"
        )


_OPTIONS: Final = {
    Resource.TOPIC: "topic",
    Resource.GROUP: "group",
    Resource.TRANSACTIONAL_ID: "transactional-id",
}


def _target(right: Right) -> tuple[str, Resource, str, bool, str]:
    """Return what a right applies to: rights on the same target share one line."""
    return right.cluster, right.resource, right.name, right.prefixed, right.why


def _by_principal(found: list[Right]) -> list[Right]:
    """Sort rights by cluster, principal and target, each in the order of its first right.

    ``groupby`` needs equal keys to be neighbours; otherwise the order of ``rights`` is kept.
    """
    # Reversed, so that the number of the first right of a key wins.
    principals = {right.principal: number for number, right in reversed(list(enumerate(found)))}
    targets = {
        (right.principal, _target(right)): number
        for number, right in reversed(list(enumerate(found)))
    }
    return sorted(
        found,
        key=lambda right: (
            right.cluster,
            principals[right.principal],
            targets[right.principal, _target(right)],
        ),
    )
