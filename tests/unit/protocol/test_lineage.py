"""Which checkpoint a replica goes on from, and which record it continues."""

from __future__ import annotations

import pytest

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.lineage import Lineage, epoch_of, lineage_name, newest, obsolete


def test_g1_names_sort_by_epoch_and_number() -> None:
    names = [lineage_name(9, 2), lineage_name(10, 0), lineage_name(10, 1), "copying", "000000000011-00000x"]
    assert newest(names) == lineage_name(10, 1)
    assert newest(["other"]) is None
    assert [epoch_of(n) for n in names] == [9, 10, 10, None, None]


def test_g2_only_lower_epochs_are_deleted() -> None:
    names = [lineage_name(9, 0), lineage_name(9, 3), lineage_name(10, 0), lineage_name(11, 0), "something else"]
    assert obsolete(names, 10) == [lineage_name(9, 0), lineage_name(9, 3)]


def test_g3_the_tip_is_the_record_of_the_last_committed_batch() -> None:
    first = Lineage.fresh(3)
    assert first.tip(-1) is None
    assert first.tip(4) == BatchId(first.name, 4)
    second = first.copied(8, 4)
    assert second.name == lineage_name(8, 0)
    assert second.tip(4) == BatchId(first.name, 4)
    assert second.tip(5) == BatchId(second.name, 5)
    third = second.copied(20, 4)  # nothing was committed in between
    assert third.tip(4) == BatchId(first.name, 4)
    assert first.copied(9, -1).tip(-1) is None


def test_a_directory_that_stands_before_its_lineages_start_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="began after batch 4"):
        Lineage.fresh(3).copied(8, 4).tip(3)
