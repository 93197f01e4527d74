"""File of looked-up bindings beside a pipeline file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.pipeline.kept_bindings import (
    Cluster,
    KeptBinding,
    from_kept,
    is_of,
    kept_path,
    kept_text,
    read_kept,
)
from anabranch.pipeline.yaml_text import PIPELINE_FILE_BYTES_MAX
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.lookup import WantedStream

KEPT = KeptBinding(
    participant="north",
    pipeline="roads",
    stream="speeds",
    record={"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]},
    bucket_ms=250,
    replicas=1,
    hops=1,
    out_of_orderness_ms=0,
)
WANTED = WantedStream("north", "speeds", 250)


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "billing.yaml"
    assert kept_path(path) == tmp_path / "billing.bindings.json"
    assert read_kept(path) == {}
    kept_path(path).write_text(kept_text({"theirs": KEPT}))
    assert read_kept(path) == {"theirs": KEPT}
    assert from_kept(path)("tolls", "theirs", WANTED, Cluster()) == KEPT
    assert "not known" in str(from_kept(path)("tolls", "others", WANTED, Cluster()))


def test_the_file_is_read_once_for_all_bindings(tmp_path: Path) -> None:
    path = tmp_path / "billing.yaml"
    kept_path(path).write_text(kept_text({"theirs": KEPT}))
    look_up = from_kept(path)
    look_up("tolls", "theirs", WANTED, Cluster())
    kept_path(path).unlink()
    assert look_up("tolls", "theirs", WANTED, Cluster()) == KEPT


@pytest.mark.parametrize(
    ("wanted", "is_same"),
    [
        (WANTED, True),
        (WantedStream("north", "speeds", 250, "roads"), True),
        (WantedStream("north", "speeds", 250, "other"), False),
        (WantedStream("south", "speeds", 250), False),
        (WantedStream("north", "tolls", 250), False),
    ],
)
def test_it_is_of_the_stream_that_it_was_looked_up_for(wanted: WantedStream, is_same: bool) -> None:
    assert is_of(KEPT, wanted) is is_same


def test_what_changed_is_named() -> None:
    assert KEPT.changes(KEPT) == []
    now = KEPT.model_copy(update={"replicas": 2, "record": {}})
    assert KEPT.changes(now) == ["record", "replicas"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"bindings": {"a": {}}}',
        kept_text({"a": KEPT}).replace('"replicas": 1', '"replicas": 17'),
        kept_text({"a": KEPT}).replace('"hops": 1', '"hops": "1"'),
        json.dumps({"bindings": {}, "more": 1}),
        "\udcff",
    ],
)
def test_a_file_that_is_none_is_a_mistake_of_the_binding(tmp_path: Path, text: str) -> None:
    path = tmp_path / "billing.yaml"
    kept_path(path).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigurationError, match="anabranch catalog --keep"):
        read_kept(path)
    look_up = from_kept(path)
    for _ in range(2):
        assert "anabranch catalog --keep" in str(look_up("tolls", "a", WANTED, Cluster()))


def test_a_file_that_is_too_large_or_cannot_be_read_is_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "billing.yaml"
    kept_path(path).write_bytes(b" " * (PIPELINE_FILE_BYTES_MAX + 1))
    with pytest.raises(ConfigurationError, match="is larger than"):
        read_kept(path)
    kept_path(path).unlink()
    kept_path(path).mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_kept(path)
