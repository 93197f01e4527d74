"""The tutorials of docs/overload.md and docs/scaling.md, as they are printed there: the commands
only, on a broker and a Spark of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.page_tutorials import prepare_rush, prepare_split
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

COMMAND_S = 240


def anabranch(folder: Path, *words: str) -> str:
    """Run a command in a folder. Return what it prints."""
    command = [sys.executable, "-m", "anabranch.cli", *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def produced(folder: Path, every: str) -> Iterator[None]:
    """Generate readings in the background."""
    command = [sys.executable, "-m", "anabranch.cli"]
    process = subprocess.Popen(
        [*command, "produce", "readings", "--generate", "--every", every],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
        assert process.poll() is None, "it produces until the end"
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def up(folder: Path, name: str, prepare: Callable[[Path], None]) -> Iterator[Path]:
    """Make a new pipeline, change it as a tutorial says, and run it."""
    anabranch(folder, "init", name)
    made = folder / name
    prepare(made)
    anabranch(made, "up", "--detach")
    try:
        yield made
    finally:
        anabranch(made, "down")


def details(folder: Path) -> list[dict[str, Any]]:
    """Return what each process, and each replica of a node, says about itself."""
    found: list[dict[str, Any]] = []
    for row in json.loads(anabranch(folder, "status", "--json")):
        detail = row["detail"] if isinstance(row["detail"], dict) else {}
        found += [detail, *(each.get("detail") or each for each in detail.get("stages", ()))]
    return found


def stable(folder: Path, count: int) -> list[tuple[str, str]]:
    """Return sensor and time of the first results of the corrected topic."""
    words = ("tail", "hottest", "--from-beginning", "--with-id", "--count", str(count))
    lines = [line.split("\t") for line in anabranch(folder, *words).splitlines()]
    return [(json.loads(line[-1])["sensor"], line[1]) for line in lines]


def test_a_rush_is_shown_from_a_part_of_its_rows_and_corrected(tmp_path: Path) -> None:
    with up(tmp_path, "sensors", prepare_rush) as folder, produced(folder, "200ms"):
        first = stable(folder, 40)
        anabranch(folder, "produce", "readings", "--generate", "--every", "20ms", "--count", "1500")
        wait_until(
            lambda: any(each.get("shed", 0) > 0 for each in details(folder)),
            60,
            lambda: f"rows are left out: {details(folder)}",
            every_s=1,
        )
        wait_until(
            lambda: not any(each.get("shed", 0) > 0 for each in details(folder)),
            600,
            lambda: f"all is corrected: {details(folder)}",
            every_s=2,
        )
        found = stable(folder, len(first) + 100)
    assert len(set(found)) == len(found), "no result is there twice"


def test_a_shard_is_split_by_the_scaler(tmp_path: Path) -> None:
    with up(tmp_path, "checks", prepare_split) as folder, produced(folder, "250ms"):

        def is_split() -> bool:
            return any(
                (each.get("split") or {}).get("phase") == "confirmed" for each in details(folder)
            )

        wait_until(is_split, 600, lambda: f"it is split: {details(folder)}", every_s=2)
        assert len(json.loads(anabranch(folder, "scale", "--json"))["events"]) >= 1
        found = stable(folder, 100)
    assert len(set(found)) == len(found), "no result is there twice"
