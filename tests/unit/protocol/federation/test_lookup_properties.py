"""Properties of the catalogs, whatever is written into them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.lookup import CatalogEntry, FoundStream, WantedStream
from harness.catalogs import BEGIN_MS, Catalogs, entry, public, signature

NAMES = st.sampled_from(["north", "north", "south"])
PIPELINES = st.sampled_from(["north", "other"])


class Entry(NamedTuple):
    where: str
    participant: str
    by: str
    key_id: str
    pipeline: str
    at_ms: int

    def entry(self) -> CatalogEntry:
        return entry(
            self.participant,
            self.pipeline,
            at_ms=self.at_ms,
            public=public(self.participant),
        )


ENTRIES = st.lists(
    st.builds(
        Entry,
        NAMES,
        NAMES,
        NAMES,
        st.sampled_from(["1", "1", "2"]),
        PIPELINES,
        st.integers(BEGIN_MS, BEGIN_MS + 5),
    ),
    max_size=12,
)


def all_of(entries: list[Entry]) -> Catalogs:
    made = Catalogs()
    for each in entries:
        what = each.entry()
        made.lookup.add(each.where, what, signature(what, each.by, each.key_id), each.at_ms)
    return made


@given(ENTRIES)
def test_what_is_listed_is_the_newest_that_its_participant_has_signed(entries: list[Entry]) -> None:
    found = {
        (each.entry.participant, each.entry.pipeline): each.entry.at_ms
        for each in all_of(entries).lookup.listings()
    }
    counts = [s for s in entries if s.where == s.participant == s.by and s.key_id == "1"]
    newest: dict[tuple[str, str], int] = {}
    for each in counts:
        where = each.participant, each.pipeline
        newest[where] = max(newest.get(where, 0), each.at_ms)
    assert found == newest


@given(ENTRIES, st.integers(0, 12))
def test_what_is_written_again_changes_nothing(entries: list[Entry], many: int) -> None:
    assert all_of(entries).lookup.listings() == all_of(entries + entries[:many]).lookup.listings()


@given(ENTRIES, NAMES, PIPELINES, st.integers(BEGIN_MS, BEGIN_MS + 120_000))
def test_what_is_found_is_current_and_nobody_elses(
    entries: list[Entry], participant: str, pipeline: str, now_ms: int
) -> None:
    made = all_of(entries)
    found = made.lookup.find(WantedStream(participant, "speeds", 250, pipeline), now_ms)
    current = {
        each.entry.participant
        for each in made.lookup.listings()
        if each.entry.pipeline == pipeline and each.is_current(now_ms)
    }
    assert isinstance(found, FoundStream) is (current == {participant})
