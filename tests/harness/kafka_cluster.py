"""Three real brokers on this machine, each a voter of the controllers' quorum: what is lost when
one dies, and what is not.

Each is the embedded broker (``local.embedded_kafka``) with another place in a cluster. Every topic
that is made without saying otherwise, and every internal one, has three copies, of which two must
have a record.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka.admin import AdminClient
from typing_extensions import override

from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.local.owned_server import write_whole
from anabranch.local.tcp_ports import LOOPBACK, free_port
from harness.waiting import wait_until

HEAP_MIB = 320
COPIES, IN_SYNC = 3, 2

_REPLICATION = {
    "default.replication.factor": str(COPIES),
    "min.insync.replicas": str(IN_SYNC),
    "offsets.topic.replication.factor": str(COPIES),
    "transaction.state.log.replication.factor": str(COPIES),
    "transaction.state.log.min.isr": str(IN_SYNC),
    "share.coordinator.state.topic.replication.factor": str(COPIES),
    "share.coordinator.state.topic.min.isr": str(IN_SYNC),
    # A follower that comes back is in sync again, and leads again, within seconds.
    "replica.lag.time.max.ms": "5000",
    "leader.imbalance.check.interval.seconds": "10",
    "leader.imbalance.per.broker.percentage": "0",
}


class ClusterNode(EmbeddedKafka):
    """One of the brokers. ``start`` answers only once a majority of them runs."""

    def __init__(
        self, state_dir: Path, node: int, port: int, controllers: Sequence[int], cluster_id: str
    ) -> None:
        super().__init__(state_dir, port, HEAP_MIB)
        self.node = node
        self._controllers, self._cluster_id = list(controllers), cluster_id

    @override
    def _choose_ports(self, *, afresh: bool, relink: bool) -> tuple[int, int]:
        return self._needed_port(), self._controllers[self.node - 1]

    @override
    def _write_properties(self, port: int, controller_port: int) -> Path:
        path = super()._write_properties(port, controller_port)
        voters = ",".join(
            f"{number}@{LOOPBACK}:{at}" for number, at in enumerate(self._controllers, 1)
        )
        more = {**_REPLICATION, "node.id": str(self.node), "controller.quorum.voters": voters}
        kept = [
            line
            for line in path.read_text().splitlines()
            if line.split("=")[0] not in {*more, "controller.quorum.bootstrap.servers"}
        ]
        write_whole(
            path,
            "".join(
                f"{line}\n"
                for line in [*kept, *(f"{name}={value}" for name, value in more.items())]
            ),
        )
        return path

    @override
    def _format(self, command: list[str], properties: Path) -> None:
        arguments = [
            *command,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            self._cluster_id,
            "-c",
            str(properties),
        ]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        write_whole(self._dir / "formatted", self._cluster_id)


class KafkaCluster:
    """The three. Not thread-safe."""

    def __init__(self, state_dir: Path) -> None:
        ports, controllers = [free_port() for _ in range(3)], [free_port() for _ in range(3)]
        cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        self.nodes = [
            ClusterNode(state_dir / f"kafka{n}", n, port, controllers, cluster)
            for n, port in enumerate(ports, 1)
        ]

    @property
    def address(self) -> str:
        """Addresses of all three brokers, for clients."""
        return ",".join(node.address for node in self.nodes)

    def start(self) -> str:
        """Start those that do not run; the address."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(lambda node: node.start(120), self.nodes))
        wait_until(
            lambda: len(self.client().list_topics(timeout=10).brokers) == len(self.nodes),
            60,
            "all brokers are members",
        )
        return self.address

    def stop(self) -> None:
        """End all of them; by force, since the last ones have no majority to take leave of."""
        for node in self.nodes:
            node.kill()

    def client(self) -> AdminClient:
        """Return the library's own client, for questions."""
        return AdminClient({"bootstrap.servers": self.address, "socket.timeout.ms": 10_000})

    def leader(self, topic: str, partition: int = 0) -> ClusterNode:
        """Return the leader of a partition; of ``__transaction_state``, the coordinator of all
        transactions.
        """

        def leader() -> int:
            found = self.client().list_topics(topic, timeout=10).topics[topic].partitions
            return int(found[partition].leader) if partition in found else -1

        return self.nodes[wait_until(lambda: max(0, leader()), 60, f"{topic} has a leader") - 1]

    def in_sync(self) -> bool:
        """Whether every copy of every partition is in sync."""
        topics = self.client().list_topics(timeout=10).topics.values()
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return bool(partitions) and all(len(partition.isrs) == COPIES for partition in partitions)
