"""``anabranch doctor``: checks of what a deployment needs from this machine and its broker.

Each check reports what it found and, where that does not suffice, what to do about it.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.access.pipeline_acls import CLOCK_TOPIC
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.security import security_from_environment
from anabranch.adapters.spark import bare_files, class_archive
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.java import find_java
from anabranch.adapters.system.progress import Progress, unwatched
from anabranch.codec.catalog import TopicSettings
from anabranch.local.embedded_redis import find_redis_server
from anabranch.local.kafka_jars import kafka_classpath
from anabranch.local.tcp_ports import free_port
from anabranch.ports import Clock, EventLog, TopicPartition
from anabranch.protocol.errors import AdapterError, ConfigurationError, Unavailable

PYTHON_MIN: Final = (3, 11)
MEMORY_MIB_MIN: Final = 3_500
"""Free memory that a small pipeline needs, in MiB: the broker takes 600, each stage about 1000, and
each other process 200. With less the kernel kills processes.
"""
DISK_MIB_MIN: Final = 2_000
SKEW_MS_MAX: Final = 500
"""Difference between the broker's clock and this machine's that is tolerated, in ms. Beyond it the
lags shown are wrong, and a source that stamps records on arrival sees records from the future.
"""

_END_TXN_KEY: Final = 26
_END_TXN_MIN: Final = 5
"""Lowest version of Kafka's EndTxn request that the broker must know. EndTxn 5 came with Kafka 4.0:
from then on a delayed request of one transaction cannot end the next one early.
"""
_CONNECT_S: Final = 3.0
_ANSWER_BYTES_MAX: Final = 64 * 1024
_CLOCK_WAIT_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str
    good: bool
    found: str
    remedy: str = ""
    """Advice; empty: none is needed."""


def examine(kafka: str | None, state_dir: Path, progress: Progress = unwatched) -> Iterator[Check]:
    """Run the checks, and yield each result as soon as it is known.

    Checks the broker at ``kafka``; None: the embedded broker's jars instead. ``progress`` receives
    the steps of a check that takes long.
    """
    yield from (_python(), _java(), _memory(), _disk(state_dir), _ports(), _redis(), _classes())
    if kafka is None:
        yield _kafka_jars(progress)
        return
    version = _broker_version(kafka)
    yield version
    if version.good:  # else nothing at the address could answer
        yield _clock_skew(kafka)


def _python() -> Check:
    found = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] >= PYTHON_MIN:
        return Check("Python", True, found)
    return Check("Python", False, found, f"install Python {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or newer")


def _checked(name: str, question: Callable[[], str], remedy: str = "") -> Check:
    """Return the result of a check that ``question`` makes.

    ``question`` returns what it found, or raises an error whose text says what is wrong.
    """
    try:
        return Check(name, True, question())
    except (ConfigurationError, AdapterError, OSError) as error:
        return Check(name, False, str(error), remedy)


def _java() -> Check:
    def question() -> str:
        java = find_java()
        return f"{java.major} ({java.executable})"

    return _checked("Java", question)


def _memory() -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    available = memory_available_mib(Path("/proc/meminfo").read_text(encoding="ascii"))
    found = f"{available} MiB of {total} MiB free"
    if available >= MEMORY_MIB_MIN:
        return Check("Memory", True, found)
    return Check(
        "Memory",
        False,
        found,
        f"a small pipeline needs {MEMORY_MIB_MIN} MiB: end other programs, or use fewer stages and"
        " replicas",
    )


def memory_available_mib(meminfo: str) -> int:
    """Return ``MemAvailable`` of the text of /proc/meminfo, in MiB."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0


def _disk(state_dir: Path) -> Check:
    place = next(
        parent
        for parent in (state_dir.absolute(), *state_dir.absolute().parents)
        if parent.exists()
    )
    room = os.statvfs(place)
    free_mib = room.f_bavail * room.f_frsize // 2**20
    found = f"{free_mib} MiB free at {place}"
    if free_mib >= DISK_MIB_MIN:
        return Check("Disk", True, found)
    return Check(
        "Disk",
        False,
        found,
        f"the embedded Kafka and the checkpoints want {DISK_MIB_MIN} MiB: make room, or use"
        " --state-dir",
    )


def _ports() -> Check:
    return _checked("Ports", lambda: f"127.0.0.1:{free_port()} can be opened")


def _redis() -> Check:
    return _checked("redis-server", lambda: str(find_redis_server()))


def _classes() -> Check:
    """Check what ``anabranch classes`` prepares. It is good even without: only slower."""
    archive = class_archive.place().archive
    if not archive.exists():
        return Check(
            "Java classes",
            True,
            "no archive: stages start, but slowly",
            "run `anabranch classes` once to make it; it takes half a minute",
        )
    if bare_files.jar() is None:
        return Check(
            "Java classes",
            True,
            f"{archive}; but Spark starts a process for each file that it writes",
            "run `anabranch classes` once to get the jar that avoids this",
        )
    return Check("Java classes", True, str(archive))


def _kafka_jars(progress: Progress) -> Check:
    remedy = "let this machine reach a Maven repository once, or give a broker by --kafka"
    return _checked("Kafka jars", lambda: f"{len(kafka_classpath(progress))} jars", remedy)


def _broker_version(address: str) -> Check:
    def question() -> str:
        version = end_txn_version(api_versions(address))
        if version < _END_TXN_MIN:
            raise ConfigurationError(
                f"older than 4.0 (EndTxn {version}): a delayed request may end a transaction early;"
                " upgrade the broker to 4.0 or newer"
            )
        return f"{address}: 4.0 or newer"

    return _checked(
        "Broker",
        question,
        "check the address (HOST:PORT) and that it runs; with TLS or passwords set"
        " ANABRANCH_KAFKA_SECURITY_PROTOCOL (docs/security.md)",
    )


def _connected(host: str, port: int, tls: ssl.SSLContext | None) -> socket.socket:
    """Open a connection, by TLS if ``tls`` is given. Leaves no socket open when it fails."""
    plain = socket.create_connection((host, port), timeout=_CONNECT_S)
    if tls is None:
        return plain
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except OSError:
        plain.close()
        raise


def api_versions(address: str) -> bytes:
    """Ask the broker for the versions of its requests, and return its answer without the length.

    Uses ApiVersions 0, which every broker answers before a login. The client library does not show
    the versions that it learns.

    Raises:
        ConfigurationError: ``address`` is not HOST:PORT.
        OSError: the broker cannot be reached, or does not speak Kafka.
    """
    host, _, port = address.split(",", 1)[0].strip().rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigurationError(f"{address!r} is not HOST:PORT")
    client = b"anabranch-doctor"
    request = struct.pack(">hhih", 18, 0, 1, len(client)) + client
    tls = security_from_environment().tls()
    try:
        connected = _connected(host.strip("[]"), int(port), tls)
    except OSError as error:
        raise OSError(
            f"no Kafka broker answers at {address} within {_CONNECT_S:g} s ({error})"
        ) from error
    with connected as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            head = stream.read(4)
            length = int.from_bytes(head, "big")
            if len(head) < 4 or not 10 <= length <= _ANSWER_BYTES_MAX:
                raise OSError(f"{address} does not answer as a Kafka broker")
            return stream.read(length)


def end_txn_version(answer: bytes) -> int:
    """Return the highest EndTxn version in an answer to ApiVersions 0; -1: it names none."""
    count = int.from_bytes(answer[6:10], "big")
    for place in range(10, min(len(answer) - 5, 10 + 6 * count), 6):
        key, _, highest = struct.unpack_from(">hhh", answer, place)
        if key == _END_TXN_KEY:
            return int(highest)
    return -1


def _clock_skew(address: str) -> Check:
    def question() -> str:
        skew_ms = clock_skew_ms(
            KafkaEventLog(address, request_timeout_ms=5_000, delivery_timeout_ms=5_000),
            SystemClock(),
        )
        if abs(skew_ms) > SKEW_MS_MAX:
            raise ConfigurationError(
                f"the broker's clock is {skew_ms:+d} ms off this machine's: set both by NTP"
            )
        return f"broker within {SKEW_MS_MAX} ms of this machine"

    return _checked("Clock", question, "is the broker running, and may a topic be made there?")


def clock_skew_ms(log: EventLog, clock: Clock) -> int:
    """Return a lower bound of how far the broker's clock is ahead of this machine's, in ms.

    Negative: it is behind. 0: the difference is within the time that the write took.

    Kafka shows the broker's time only as the timestamp of a record, so one record is written to the
    topic ``anabranch.doctor``.

    Raises:
        AdapterError: the broker does not answer, or does not allow the topic or the write.
    """
    config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "60000"}
    admin = log.admin()
    writer = log.writer()
    reader = log.reader()
    try:
        admin.create([TopicSettings(CLOCK_TOPIC, 1, config=config)])
        before_ms = clock.now_ms()
        writer.send(TopicPartition(CLOCK_TOPIC, 0), b"?")
        delivered = writer.flush()[-1]
        after_ms = clock.now_ms()
        reader.assign({delivered.at: delivered.offset})
        deadline_ms = clock.monotonic_ms() + _CLOCK_WAIT_MS
        while clock.monotonic_ms() < deadline_ms:
            for chunk in reader.fetch(1, 200):
                broker_ms = chunk.timestamps_ms[0]
                # The broker stamped the record between the two times. Only what lies outside of
                # them is certainly a difference of the clocks.
                return min(0, broker_ms - before_ms) + max(0, broker_ms - after_ms)
        raise Unavailable("the record of the clock check could not be read back")
    finally:
        admin.close()
        writer.close()
        reader.close()
