"""One broker that lets nobody do anything, and the ACLs of ``pipeline.yaml`` on it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.access.pipeline_acls import rights
from anabranch.local.topic_creation import prepare, topics_of
from anabranch.pipeline.file import load
from harness.certificates import Authority
from harness.secure_kafka import ROOT, Secured, SecureKafka

FILE = Path(__file__).parent / "pipeline.yaml"


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    pipeline = load(FILE)
    needed = rights(pipeline)
    passwords = {
        user: f"planted-{secrets.token_hex(12)}"
        for user in [ROOT, *dict.fromkeys(right.principal for right in needed)]
    }
    authority = Authority(folder / "authority", "trusted")
    broker = SecureKafka(folder / "kafka", authority, passwords)
    try:
        broker.start()
        broker.allow(needed)
        made = prepare(
            broker.log("secure.operator"), topics_of(pipeline), create_inputs=True, say=pytest.fail
        )
        found = Secured(broker, pipeline, authority, passwords)
        assert sorted(made) == sorted(found.topics)
        yield found
    finally:
        broker.stop()
