"""Whatever listens for a session - Java's ports, this process', the workers' - answers nobody
who has no secret.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from anabranch.adapters.spark.class_training import TrainingSource
from anabranch.adapters.spark.engine import SparkQuery
from anabranch.adapters.spark.session import start_session
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.scratch import Scratch
from benchmarks.processes import tree
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

LISTENS = "0A"
LISTENS_UNIX = "00010000"
RPC_REQUEST, RPC_RESPONSE = 3, 4
ANSWER_S = 3.0


def as_they_are(session: SparkSession) -> Any:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return lambda frame: frame.mapInArrow(run, frame.schema).toArrow()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a session with a query that uses all kinds of processes: planner, workers,
    callbacks.
    """
    scratch = Scratch(tmp_path_factory.mktemp("scratch"))
    session = start_session(
        "listeners",
        master="local[1]",
        memory="512m",
        state_partitions=1,
        import_roots=[],
        scratch=scratch,
    )
    session.dataSource.register(TrainingSource)
    done: list[int] = []
    write = as_they_are(session)

    def batch(frame: DataFrame, number: int) -> None:
        write(frame)
        done.append(number)

    query = (
        session.readStream.format(TrainingSource.name())
        .load()
        .writeStream.foreachBatch(batch)
        .start()
    )
    wait_until(lambda: len(done) > 2 or query.exception() is not None, 120, "batches")
    assert query.exception() is None
    yield session
    count = len(done)
    wait_until(
        lambda: len(done) > count + 2 or query.exception() is not None,
        60,
        "batches after all that was tried",
    )
    assert query.exception() is None
    SparkQuery(lambda: query, "all kinds", SystemClock(), lambda error: error, lambda: None).stop()
    session.stop()


def inodes_of(pids: Iterable[int]) -> set[str]:
    """Return the inodes of the processes' open sockets; none of processes that have ended."""
    found = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    return found


def ports_of(pids: Iterable[int]) -> set[int]:
    """At which the processes listen."""
    inodes = inodes_of(pids)
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return {
        int(line[1].rpartition(":")[2], 16)
        for line in lines
        if line[3] == LISTENS and line[9] in inodes
    }


def java_of(session: SparkSession) -> int:
    return int(session.sparkContext._gateway.proc.pid)


def workers_of(session: SparkSession) -> set[int]:
    return set(tree(java_of(session))) - {java_of(session)}


def answer(port: int, question: bytes) -> bytes:
    """All that comes until the other side closes, or says no more."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
        connection.settimeout(ANSWER_S)
        received = b""
        try:
            connection.sendall(question)
            while more := connection.recv(4_096):
                received += more
        except OSError:
            pass
        return received


def request(body: bytes) -> bytes:
    """Return a request as Spark's processes send it to each other."""
    return struct.pack(">QBQI", 8 + 1 + 8 + 4 + len(body), RPC_REQUEST, 7, len(body)) + body


def rpc_questions(session: SparkSession) -> dict[str, bytes]:
    """Return requests that Spark answers to any client if no secret is required, for both of Java's
    services.
    """
    java: Any = session._jvm
    names = session.sparkContext._gateway.new_array(java.java.lang.String, 0)
    local_dirs = java.org.apache.spark.network.shuffle.protocol.GetLocalDirsForExecutors(
        session.sparkContext.applicationId, names
    )
    verifier = java.org.apache.spark.util.Utils.classForName(
        "org.apache.spark.rpc.netty.RpcEndpointVerifier$CheckExistence", True, False
    )
    arguments = session.sparkContext._gateway.new_array(java.java.lang.Object, 1)
    arguments[0] = "HeartbeatReceiver"
    stream = java.java.io.ByteArrayOutputStream()
    out = java.java.io.ObjectOutputStream(stream)
    out.writeObject(verifier.getConstructors()[0].newInstance(arguments))
    out.flush()
    host, name = b"127.0.0.1", b"endpoint-verifier"
    to = (
        b"\0"
        b"\1"
        + struct.pack(">H", len(host))
        + host
        + struct.pack(">I", 1)
        + struct.pack(">H", len(name))
        + name
    )
    return {
        "blocks": request(bytes(local_dirs.toByteBuffer().array())),
        "endpoints": request(to + bytes(stream.toByteArray())),
    }


def test_the_services_of_spark_answer_nobody(session: SparkSession) -> None:
    ports, questions = ports_of([java_of(session)]), rpc_questions(session)
    assert len(ports) >= 3, "the driver's, the block manager's, Py4J's"
    asked = [(port, name) for port in ports for name in questions]
    # All at once: each service that answers nothing is waited for ANSWER_S.
    with ThreadPoolExecutor(len(asked)) as clients:
        replies = clients.map(lambda each: answer(each[0], questions[each[1]]), asked)
        answered = {
            (name, reply[:100])
            for (_, name), reply in zip(asked, replies, strict=True)
            if reply[8:9] == bytes([RPC_RESPONSE])
        }
    assert answered == set()


def test_java_takes_no_command_of_python_without_the_token(session: SparkSession) -> None:
    """The command asks for the version of Java, which Py4J answers with ``!ys17...``."""
    command = b"c\nz:java.lang.System\ngetProperty\nsjava.version\ne\n"
    assert [
        reply
        for port in ports_of([java_of(session)])
        if (reply := answer(port, command)).startswith(b"!y")
    ] == []


def test_this_process_takes_calls_of_its_java_only(session: SparkSession) -> None:
    server = session.sparkContext._gateway._callback_server
    assert server.get_listening_port() in ports_of([os.getpid()])
    (proxy,) = list(server.pool.dict)[:1]
    assert answer(server.get_listening_port(), f"c\n{proxy}\ntoString\ne\n".encode()) == b""


def is_private(folder: Path) -> bool:
    """Whether only this user gets into the folder. A socket of an earlier session of this
    process may be in another one.
    """
    found = folder.stat()
    return stat.S_IMODE(found.st_mode) == stat.S_IRWXU and found.st_uid == os.getuid()


def test_workers_have_sockets_in_a_private_folder_only(session: SparkSession) -> None:
    workers = workers_of(session)
    assert len(workers) >= 3, "the daemon, a worker, the planner of the source"
    assert ports_of(workers) == set()
    inodes = inodes_of([*workers, java_of(session), os.getpid()])
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    paths = [
        Path(line[7])
        for line in lines
        if line[3] == LISTENS_UNIX and line[6] in inodes and len(line) > 7
    ]
    folder = Path(session.conf.get("spark.python.unix.domain.socket.dir") or "")
    assert folder in {path.parent for path in paths}
    open_to_others = {
        path for path in paths if path.parent.exists() and not is_private(path.parent)
    }
    assert open_to_others == set()
