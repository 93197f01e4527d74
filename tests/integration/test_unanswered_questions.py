"""A broker that answers late, or not at all, is asked by many: the Kafka client outlives
that, in a process that it would take with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.local.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.integration

PROGRAM = """
import contextlib, sys, threading, time
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import Unavailable

what, address, seconds = sys.argv[1:]
places = [TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("b", 1)]
end = time.monotonic() + float(seconds)
answers = []

def ask(number):
    log = KafkaEventLog(address, request_timeout_ms=(250, 500, 1_000)[number % 3])
    while time.monotonic() < end:
        reader, admin = log.reader(), log.admin()
        for _ in range(5):
            with contextlib.suppress(Unavailable):
                if what == "ends":
                    answers.extend(reader.ends(places, (1, 20, 1_000)[number % 3]).values())
                else:
                    admin.delete_before(dict.fromkeys(places, 0))
                    answers.append(0)
        reader.close()
        admin.close()

threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(answers) > 0 and not any(answers))
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    made = EmbeddedKafka(tmp_path_factory.mktemp("broker") / "state")
    yield made
    made.stop()


@pytest.mark.parametrize("what", ["ends", "deletes"])
def test_nothing_breaks_down_in_the_client(broker: EmbeddedKafka, what: str) -> None:
    """If the client does not know a partition's leader, its own query frees memory twice once the
    answer is late. A deletion has a timeout of at least a quarter of a second: with a few
    milliseconds librdkafka 2.16 still does so, in a race; services use seconds.
    """
    address = broker.start()
    KafkaEventLog(address).admin().create([TopicSettings("a", 1), TopicSettings("b", 2)])
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, what, address, "10"], stdout=subprocess.PIPE, text=True
    )
    pid = broker.pid
    assert pid is not None
    output, is_paused = None, False
    while output is None:
        try:
            output, _ = process.communicate(timeout=0.3)
        except subprocess.TimeoutExpired:
            os.kill(pid, signal.SIGCONT if is_paused else signal.SIGSTOP)
            is_paused = not is_paused
    os.kill(pid, signal.SIGCONT)
    assert (process.returncode, output) == (0, "True\n")
