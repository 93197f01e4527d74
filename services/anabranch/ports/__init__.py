"""Interfaces to everything outside a service, as types. The adapters implement them;
``adapters.memory`` does so in memory.

A *log* is a Kafka cluster: named topics of partitions, each an append-only sequence of records with
offsets. An offset identifies a record; ``offset_next`` is that of the next one to read. Every
implementation passes the same tests in ``tests/conformance``.
"""

from __future__ import annotations

from anabranch.ports.disk import AuditNonces, Checkpoints, Disks, Reach, ReplicaDisk
from anabranch.ports.engine import (
    BatchDone,
    BatchStart,
    Engine,
    PreparedStage,
    QueryDriver,
    QueryOutput,
    RunningQuery,
    StartingEngine,
)
from anabranch.ports.event_log import (
    Chunk,
    EventLog,
    Headers,
    LogAdmin,
    LogReader,
    LogWriter,
    RecordPosition,
    TopicPartition,
    TransactionalWriter,
)
from anabranch.ports.lookups import Index, SchemaRegistry
from anabranch.ports.threads import Condition, Flag, Thread, Threads, Turn
from anabranch.ports.time_and_chance import Clock, Entropy

__all__ = [
    "AuditNonces",
    "BatchDone",
    "BatchStart",
    "Checkpoints",
    "Chunk",
    "Clock",
    "Condition",
    "Disks",
    "Engine",
    "Entropy",
    "EventLog",
    "Flag",
    "Headers",
    "Index",
    "LogAdmin",
    "LogReader",
    "LogWriter",
    "PreparedStage",
    "QueryDriver",
    "QueryOutput",
    "Reach",
    "RecordPosition",
    "ReplicaDisk",
    "RunningQuery",
    "SchemaRegistry",
    "StartingEngine",
    "Thread",
    "Threads",
    "TopicPartition",
    "TransactionalWriter",
    "Turn",
]
