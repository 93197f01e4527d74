"""Damage in a checkpoint is found before Spark meets it, and an older batch is gone back to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.adapters.disk.checkpoint_folder import link_tree
from anabranch.adapters.disk.spark_checkpoint_files import (
    WholeFiles,
    committed_batches,
    cut_back,
    first_whole,
    last_bucket,
    numbered,
)
from harness import spark_files

LAST = 5
"""Last of the committed batches in ``checkpoint``; batch 2 has a snapshot of the state, batch 6 has
a plan.
"""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    spark_files.fill(tmp_path / "c", LAST + 1, snapshots=(2,))
    return tmp_path / "c"


def newest(checkpoint: Path) -> int | None:
    return first_whole(checkpoint, committed_batches(checkpoint), WholeFiles())


def only(checkpoint: Path, pattern: str) -> Path:
    (path,) = checkpoint.glob(pattern)
    return path


def spoil(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "changed":
        path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    else:
        path.write_bytes(content[: {"empty": 0, "cut": len(content) // 2}[how]])


HOW = ["missing", "empty", "cut", "changed"]


def test_a_whole_checkpoint(checkpoint: Path) -> None:
    assert committed_batches(checkpoint) == [5, 4, 3, 2, 1, 0]
    assert [first_whole(checkpoint, [batch], WholeFiles()) for batch in range(LAST + 1)] == list(
        range(LAST + 1)
    )
    assert newest(checkpoint) == LAST
    assert last_bucket(checkpoint, 3) == 40


def test_a_stateless_one_and_one_without_sums(tmp_path: Path) -> None:
    spark_files.fill(tmp_path, 3, partitions=0)
    for path in tmp_path.rglob(".*.crc"):
        path.unlink()
    assert newest(tmp_path) == 2


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("folder", ["offsets", "commits"])
def test_a_damaged_log_file(checkpoint: Path, folder: str, how: str) -> None:
    spoil(checkpoint / folder / str(LAST), how)
    assert newest(checkpoint) == LAST - 1


@pytest.mark.parametrize("how", HOW)
def test_a_damaged_change_of_the_state(checkpoint: Path, how: str) -> None:
    """Changelogs that build on the damaged one are useless, too, up to the next snapshot."""
    spoil(only(checkpoint, "state/0/1/5_*.changelog"), how)
    assert newest(checkpoint) == 3
    spoil(only(checkpoint, "state/0/0/2_*.changelog"), how)
    assert newest(checkpoint) == 3, "there is a snapshot after that"
    assert first_whole(checkpoint, [1, 0], WholeFiles()) == 0


def test_a_file_is_read_once_for_a_checkpoint_and_its_copies(
    checkpoint: Path, tmp_path: Path
) -> None:
    """A standby checks a copy every few seconds, of gigabytes that are those of the copy before."""
    files, every = WholeFiles(), committed_batches(checkpoint)
    assert first_whole(checkpoint, every, files) == LAST
    sst = only(checkpoint, "state/0/1/SSTs/3_*.sst")
    copy = tmp_path / "copy"
    link_tree(checkpoint, copy)
    facts = sst.stat()
    spoil(sst, "changed")
    os.utime(sst, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert first_whole(copy, every, files) == LAST
    assert list(copy.glob("state/0/1/3_*.zip")) != [], "the spoilt file was not read"
    os.utime(sst)
    assert first_whole(copy, every, files) == LAST
    assert list(copy.glob("state/0/1/3_*.zip")) == [], "it has another time, so it was"


def test_files_that_are_gone_are_forgotten(checkpoint: Path, tmp_path: Path) -> None:
    """Else they would add up for as long as the process lives."""
    files, every = WholeFiles(), committed_batches(checkpoint)
    assert first_whole(checkpoint, every, files) == LAST
    sst = only(checkpoint, "state/0/1/SSTs/3_*.sst")
    spark_files.fill(tmp_path / "other", 1)
    assert first_whole(tmp_path / "other", [0], files) == 0
    facts = sst.stat()
    spoil(sst, "changed")
    os.utime(sst, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert first_whole(checkpoint, every, files) == LAST
    assert list(checkpoint.glob("state/0/1/3_*.zip")) == [], "it was read again"


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("file", ["3_*.zip", "SSTs/3_*.sst"])
def test_a_damaged_snapshot_is_taken_out_where_the_changes_do(
    checkpoint: Path, file: str, how: str
) -> None:
    """Spark would load the newest snapshot, whole or not."""
    spoil(only(checkpoint, f"state/0/1/{file}"), how)
    assert newest(checkpoint) == LAST
    assert list(checkpoint.glob("state/0/1/3_*.zip")) == []
    assert list(checkpoint.glob("state/0/0/3_*.zip")) != []


@pytest.mark.parametrize("how", HOW)
def test_a_damaged_snapshot_without_the_changes(checkpoint: Path, how: str) -> None:
    only(checkpoint, "state/0/1/3_*.changelog").unlink()
    assert newest(checkpoint) == LAST
    spoil(only(checkpoint, "state/0/1/3_*.zip"), how)
    assert newest(checkpoint) == 1


@pytest.mark.parametrize("how", ["empty", "cut", "changed"])
@pytest.mark.parametrize("file", ["state/0/_metadata/metadata", "state/0/0/_metadata/schema"])
def test_a_damaged_file_that_every_batch_needs(checkpoint: Path, file: str, how: str) -> None:
    spoil(checkpoint / file, how)
    assert newest(checkpoint) is None


@pytest.mark.parametrize("sums", [b"", b"crc\0", b"no sums at all", b"crc\0\0\0\0\0"])
def test_sums_that_are_no_sums(checkpoint: Path, sums: bytes) -> None:
    (checkpoint / "offsets" / f".{LAST}.crc").write_bytes(sums)
    assert newest(checkpoint) == LAST - 1


@pytest.mark.parametrize(
    ("folder", "content"),
    [
        ("commits", b"v2"),
        ("commits", b"x\n{}"),
        ("commits", b"v2\n[]"),
        ("commits", b"v2\nnull"),
        ("commits", b"v2\n{"),
        ("commits", b"\xff\xfe"),
        ("commits", b'v2\n{"stateUniqueIds":[1]}'),
        ("offsets", b"v1\n{}\n{}"),
        ("offsets", b"v1\n{"),
        ("offsets", b'v1\n{"batchWatermarkMs":0}'),
        ("offsets", b'v1\n{"batchWatermarkMs":0}\n[]'),
        ("offsets", b"v9\n{}\n{}"),
    ],
)
def test_a_commit_or_a_plan_that_is_none(checkpoint: Path, folder: str, content: bytes) -> None:
    spark_files.write(checkpoint / folder / str(LAST), content)
    assert newest(checkpoint) == LAST - 1


def test_older_commits_that_were_purged_are_not_needed(checkpoint: Path) -> None:
    for batch in (0, 1, 2, 3):
        (checkpoint / "commits" / str(batch)).unlink()
    assert newest(checkpoint) == LAST
    spark_files.write(
        checkpoint / "state/0/0/4_another.changelog", b"of a timeline that was abandoned"
    )
    assert newest(checkpoint) is None, "nobody knows which one it is"


def test_going_back_keeps_the_plan_or_not(checkpoint: Path) -> None:
    cut_back(checkpoint, LAST, keep_plan=True)
    assert numbered(checkpoint / "offsets")[-1] == LAST + 1
    cut_back(checkpoint, LAST, keep_plan=False)
    assert numbered(checkpoint / "offsets")[-1] == LAST
    cut_back(checkpoint, 2, keep_plan=True)
    assert (numbered(checkpoint / "offsets"), numbered(checkpoint / "commits")) == (
        [0, 1, 2, 3],
        [0, 1, 2],
    )
    assert not (checkpoint / "offsets" / ".4.crc").exists()


def test_a_damaged_first_plan_is_not_kept(tmp_path: Path) -> None:
    spark_files.fill(tmp_path, 0)
    spoil(tmp_path / "offsets" / "0", "empty")
    cut_back(tmp_path, -1, keep_plan=True)
    assert numbered(tmp_path / "offsets") == []


@pytest.mark.parametrize("keep_plan", [True, False])
def test_of_a_first_batch_that_is_planned_anew_no_state_is_left(
    tmp_path: Path, keep_plan: bool
) -> None:
    """The batch wrote its state and was not committed. Spark runs its plan again over that
    state, but plans none where there is some.
    """
    spark_files.fill(tmp_path, 1, plan=False)
    (tmp_path / "commits" / "0").unlink()
    cut_back(tmp_path, -1, keep_plan=keep_plan)
    assert (tmp_path / "offsets" / "0").exists() == keep_plan == (tmp_path / "state").exists()


def test_a_link_keeps_its_content(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "link").hardlink_to(checkpoint / "offsets" / str(LAST))
    cut_back(checkpoint, 0, keep_plan=False)
    assert (tmp_path / "link").read_bytes()
