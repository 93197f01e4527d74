from __future__ import annotations

import hashlib

import polars as pl
import pytest

from benchmarks.linear_road import generator, stream
from benchmarks.linear_road.generator import Mode, Plan, generate
from benchmarks.linear_road.stream import INPUT, in_order

DIGEST = "b1b4d9c423a2b1d5acc019e4437fea438342b28af7e42248cbb1446b34967f5a"
"""Hash of version 1, seed 1: a change of the bytes needs another version."""


def test_a_seed_gives_the_bytes_of_its_version() -> None:
    assert generator.VERSION == 1
    plan = Plan(3, 4, 1, Mode.DIRTY)
    assert generate(plan).digest() == DIGEST
    assert generate(Plan(3, 4, 2, Mode.DIRTY)).digest() != DIGEST


def test_a_digest_does_not_depend_on_how_much_is_text_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = generate(Plan(1, 2, 1, Mode.HOT))
    text = [table.write_csv(include_header=False) for table in (world.stream, world.history)]
    whole = hashlib.sha256("".join(text).encode()).hexdigest()
    for rows in (7, world.stream.height, 10**6):
        monkeypatch.setattr(stream, "_DIGEST_ROWS", rows)
        assert world.digest() == whole


def test_the_stream_has_the_shape_of_the_benchmark() -> None:
    world = generate(Plan(2, 20, 1))
    stream = world.stream
    assert stream.columns == list(INPUT)
    assert stream.equals(in_order(stream))
    reports = stream.filter(pl.col("type") == 0)
    assert reports.filter(pl.col("pos") // 5280 != pl.col("seg")).is_empty()
    assert reports.select(pl.col("seg").min(), pl.col("seg").max().alias("max")).row(0) == (0, 99)
    assert set(reports["lane"].unique()) == {0, 1, 2, 3, 4}
    assert reports["spd"].is_between(0, 100).all()
    first = reports.filter(pl.col("time") < 60).height / 60
    last = reports.filter(pl.col("time") >= 19 * 60).height / 60
    assert 15 < first < 25
    assert 250 < last < 400
    share = 1 - reports.height / stream.height
    assert 0.009 < share < 0.011
    mix = stream.filter(pl.col("type") > 0)["type"].value_counts(normalize=True)
    shares = dict(mix.iter_rows())
    assert shares[2] == pytest.approx(0.5, abs=0.05)
    assert shares[3] == pytest.approx(0.1, abs=0.03)
    qids = stream.filter(pl.col("qid") >= 0)["qid"]
    assert qids.to_list() == list(range(len(qids)))


def test_trips_are_those_of_the_stream() -> None:
    world = generate(Plan(2, 15, 3, Mode.HOT))
    reports = world.stream.filter(pl.col("type") == 0)
    entries = reports.filter(pl.col("lane") == 0).select("vid", "time", "xway", "dir", "seg")
    exits = reports.filter(pl.col("lane") == 4).select("vid", "time", "xway", "dir", "seg")
    trips = world.trips
    names = ["vid", "time", "xway", "dir", "seg"]
    begun = trips.rename({"entry_time": "time", "entry_seg": "seg"}).select(names)
    over = trips.filter(pl.col("exit_time") >= 0)
    ended = over.rename({"exit_time": "time", "exit_seg": "seg"}).select(names)
    for found, known in ((entries, begun), (exits, ended)):
        assert found.cast(pl.Int64).sort(names).equals(known.cast(pl.Int64).sort(names))
    assert trips["vid"].n_unique() < trips.height, "nobody comes back"
