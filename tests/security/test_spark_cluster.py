"""A stage whose tasks run on a Spark cluster, on a broker that lets nobody do anything, with the
rights that ``anabranch acls`` prints and no others.

The node comes by SCRAM over TLS, then by a client certificate. The machines of the workers lack the
secret at first, then have a wrong one, and a certificate that the broker does not trust. Every
secret is planted, and is then looked for in all that others can see.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest

from anabranch.access.pipeline_acls import rights
from anabranch.local.topic_creation import prepare, topics_of
from harness.certificates import Authority
from harness.secure_kafka import ROOT, SecureKafka
from harness.spark_cluster import SparkCluster, spark_cluster
from harness.stage_on_a_cluster import (
    DEADLINE_S,
    FUNCTIONS,
    MANY,
    STAGES,
    Expected,
    made,
    use,
    wait_closed,
)
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.cluster]

NODE = "vault.processing.both.0"


def test_a_stage_on_a_cluster_with_security_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = write_pipeline(tmp_path, "vault", FUNCTIONS, stages=STAGES)
    needed = rights(pipeline)
    passwords = {
        user: f"planted-{secrets.token_hex(12)}"
        for user in [ROOT, *dict.fromkeys(right.principal for right in needed)]
    }
    authority = Authority(tmp_path / "authority", "trusted")
    good, foreign = (
        {"certificate": made.certificate.read_text(), "key": made.key.read_text()}
        for made in (authority.issue(NODE), Authority(tmp_path / "other", "other").issue(NODE))
    )
    broker, state = SecureKafka(tmp_path / "kafka", authority, passwords), tmp_path / "state"
    # each process finds its own secrets by the same path: two folders above where it is
    where = tmp_path / "node" / "application" / "number"
    where.mkdir(parents=True)
    monkeypatch.chdir(where)
    own = "/proc/self/cwd/../.."
    put(tmp_path / "node", password=passwords[NODE], **good)
    put(tmp_path, root=passwords[ROOT])
    try:
        broker.start()
        broker.allow(needed)
        prepare(
            broker.log("vault.operator"),
            topics_of(pipeline, embedded=True),
            create_inputs=True,
            say=pytest.fail,
        )
        for name, value in by_password(broker, ROOT, str(tmp_path / "root")).items():
            monkeypatch.setenv(name, value)  # for who feeds the stage and reads its results
        with (
            spark_cluster(tmp_path / "cluster") as cluster,
            closing(Feed(broker.address, pipeline, "a")) as feed,
            closing(Output(broker.address, pipeline, "both")) as output,
        ):
            use(cluster, monkeypatch)
            expected = Expected(13)

            def more(count: int) -> int:
                end = expected.end + 10
                feed.append(readings(expected.more(end - 9, end, count)), end)
                return end

            scram = by_password(broker, NODE, f"{own}/password")
            with StageProcess(pipeline, "both.0", broker.address, state, more=scram) as node:
                more(MANY)
                ended_by(node, "ANABRANCH_KAFKA_SASL_PASSWORD_FILE: /proc/self/cwd", "cannot be")
                place(cluster, password="of nobody", **foreign)
                ended_by(node, "_AUTHENTICATION", "check the user, password and certificates")
                place(cluster, password=passwords[NODE])
                wait_closed(output, expected.end, node)
                assert made(output, expected.end) == expected.results(expected.end)
                hidden = hidden_in(passwords, authority)
                assert seen_by_others(hidden, cluster, tmp_path) == []
                cluster.kill(1)
                wait_closed(output, more(MANY), node)
            mtls = scram | {
                "ANABRANCH_KAFKA": broker.mtls_address,
                "ANABRANCH_KAFKA_SECURITY_PROTOCOL": "SSL",
                "ANABRANCH_KAFKA_SSL_CERTIFICATE": f"{own}/certificate",
                "ANABRANCH_KAFKA_SSL_KEY": f"{own}/key",
            }
            for name in ("USERNAME", "PASSWORD_FILE"):
                monkeypatch.delenv(f"ANABRANCH_KAFKA_SASL_{name}")
                del mtls[f"ANABRANCH_KAFKA_SASL_{name}"]
            with StageProcess(pipeline, "both.0", broker.mtls_address, state, more=mtls) as node:
                more(MANY)
                ended_by(node, "SSL alert number", "check the user, password and certificates")
                place(cluster, **good)
                wait_closed(output, expected.end, node)
                assert seen_by_others(hidden, cluster, tmp_path) == []
            assert made(output, expected.end) == expected.results(expected.end)
    finally:
        broker.stop()


def by_password(broker: SecureKafka, user: str, file: str) -> dict[str, str]:
    """Return the environment of a process that connects as ``user``."""
    return {
        "ANABRANCH_KAFKA": broker.address,
        "ANABRANCH_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "ANABRANCH_KAFKA_SSL_CA": str(broker.authority.certificate),
        "ANABRANCH_KAFKA_SASL_USERNAME": user,
        "ANABRANCH_KAFKA_SASL_PASSWORD_FILE": file,
    }


def put(folder: Path, **secrets_of_files: str) -> None:
    """Files that are their owner's alone."""
    for name, secret in secrets_of_files.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(secret + "\n")


def place(cluster: SparkCluster, **secrets_of_files: str) -> None:
    """Put the same files on the machine of each worker."""
    for number in range(len(cluster.workers)):
        put(cluster.work_of(number), **secrets_of_files)


def ended_by(node: StageProcess, *words: str) -> None:
    """Wait until the replica has ended for the reason that ``words`` are of, on an executor."""

    def ends() -> list[str]:
        node.check()
        lines = [line for line in node.all_of_its_log().split("\n")[:-1] if line.startswith("{")]
        entries = [json.loads(line) for line in lines]
        errors = [each["error"] for each in entries if each["event"] == "replica_ended"]
        return [text for text in errors if all(word in text for word in ("executor on", *words))]

    wait_until(ends, DEADLINE_S, lambda: f"the replica ends: {words}\n{node.log()}")


def hidden_in(passwords: Mapping[str, str], authority: Authority) -> list[bytes]:
    """Return what must stay hidden: every password, and every line of every private key."""
    keys = [
        line
        for path in authority.certificate.parent.glob("*.key")
        for line in path.read_bytes().split(b"\n")
        if line and not line.startswith(b"-----")
    ]
    return [*(secret.encode() for secret in passwords.values()), *keys]


def seen_by_others(hidden: list[bytes], cluster: SparkCluster, folder: Path) -> list[str]:
    """Return where a secret is visible: in a command line, an environment, the master's pages, or a
    file of the node or the cluster that is not a secret's own.
    """
    seen = {"the master's pages": cluster.pages()}
    processes = Path("/proc").glob("[0-9]*")
    for path in [each / name for each in processes for name in ("cmdline", "environ")]:
        with suppress(OSError):  # it has just ended
            seen[str(path)] = path.read_bytes()
    for path in [*(folder / "state").rglob("*"), *(folder / "cluster").rglob("*")]:
        if path.is_file() and path.name not in {"password", "certificate", "key"}:
            with suppress(FileNotFoundError):
                seen[str(path)] = path.read_bytes()
    assert any("executor" in text.decode(errors="replace") for text in seen.values())
    return [place for place, text in seen.items() if any(secret in text for secret in hidden)]
