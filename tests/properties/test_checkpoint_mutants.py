"""Random runs of a replica's disk and store over several lives of its stage's log: the real code
violates nothing, and each planted bug is found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from harness.checkpoint_world import CheckpointWorld
from simulation.planting import Mutant, planted

SEEDS: Final = 30
_STORE = "adapters.disk.checkpoint_store"
MUTANTS = [
    Mutant(
        "former_life_is_the_newest",
        "adapters.disk.state_format:life_folder",
        'f"life-{life}" if life else ""',
        'f"life-{life[:0]}"',
        "TI1",
    ),
    Mutant(
        "former_life_stays_on_the_disk",
        "adapters.disk.checkpoints:ReplicaFolder.clean",
        "while self._former_lives:",
        "while False:",
        "TI2",
    ),
    Mutant(
        "former_life_stays_in_the_store",
        f"{_STORE}:StoredReplica._clean_former_lives",
        "while self._former_lives:",
        "while False:",
        "TI2",
    ),
    Mutant(
        "torn_bytes_under_the_finished_files_key",
        f"{_STORE}:StoredReplica._write_files",
        "self._written = known",
        "self._written = {\n"
        "            _file_key(each, path.stat()): known[keys[each]]\n"
        "            for each, path in found.items()\n"
        "            if keys[each] in known\n"
        "        }",
        "TI4",
    ),
    Mutant(
        "first_save_removes_the_one_before",
        f"{_STORE}:StoredReplica._clean",
        "if len(retained) == _MANIFESTS_RETAINED:",
        "if manifest not in self._packs_of:",
        "TI4",
    ),
]


def found(folder: Path) -> str | None:
    """Return the first violation that any seed finds, with its seed; None: there is none."""
    for seed in range(SEEDS):
        for sentence in CheckpointWorld(folder / str(seed), seed).wrong():
            return f"seed {seed}: {sentence}"
    return None


def test_without_a_bug_nothing_is_wrong(tmp_path: Path) -> None:
    assert found(tmp_path) is None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant, tmp_path: Path) -> None:
    with planted(mutant):
        sentence = found(tmp_path)
    assert sentence is not None
