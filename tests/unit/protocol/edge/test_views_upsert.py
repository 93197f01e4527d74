from __future__ import annotations

import pytest

from anabranch.protocol.edge import views
from anabranch.protocol.edge.live_delivery import Kind
from anabranch.protocol.edge.views import KeyState, UpsertView, Version, ViewRecord
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import RecordId


def stable(bucket: int, position: int = 0) -> Version:
    return Version(RecordId(bucket, position), bucket * 100, b"s%d" % bucket)


def tentative(bucket: int, counter: int = 1) -> Version:
    return Version(RecordId(bucket, 0), bucket * 100, b"t%d" % bucket, (1, counter), ("a",))


def step(
    view: UpsertView,
    upto: int,
    inserted: dict[bytes, Version] | None = None,
    shown: dict[bytes, Version] | None = None,
    *,
    undo: bool = False,
) -> dict[bytes, tuple[str, bytes | None, bytes | None]]:
    """One committed transaction: per key (kind, visible value, last stable value)."""
    before = {key: view.state(key) for key in [*(inserted or {}), *(shown or {})]}
    writes = view.transaction(
        undo=undo,
        insertions=(inserted or {}).items(),
        stable_upto=upto,
        tentative=(shown or {}).items(),
    )
    assert {key: view.state(key) for key in before} == before, "nothing changes before the commit"
    view.apply(writes)
    return {
        w.key: (w.kind.value, value_of(w.state.visible), value_of(w.state.stable)) for w in writes
    }


def value_of(version: Version | None) -> bytes | None:
    return None if version is None else version.value


def test_stable_values_replace_each_other() -> None:
    view = UpsertView("out")
    assert step(view, 1, {b"k": stable(1)}) == {b"k": ("insertion", b"s1", b"s1")}
    assert step(view, 2, {b"k": stable(2), b"l": stable(2, 1)}) == {
        b"k": ("insertion", b"s2", b"s2"),
        b"l": ("insertion", b"s2", b"s2"),
    }
    assert (len(view), view.state(b"m")) == (2, KeyState())


def test_an_undo_brings_the_last_stable_values_back() -> None:
    view = UpsertView("out")
    step(view, 1, {b"k": stable(1)})
    assert step(view, 1, shown={b"k": tentative(2), b"new": tentative(2)}) == {
        b"k": ("tentative", b"t2", b"s1"),
        b"new": ("tentative", b"t2", None),
    }
    assert step(view, 1, shown={b"k": tentative(3)}) == {b"k": ("tentative", b"t3", b"s1")}
    assert step(view, 2, {b"l": stable(2)}, undo=True) == {
        b"l": ("insertion", b"s2", b"s2"),
        b"k": ("undo", b"s1", b"s1"),
        b"new": ("undo", None, None),
    }
    assert (len(view), view.state(b"new")) == (2, KeyState())


def test_what_is_shown_again_with_the_undo_stays() -> None:
    view = UpsertView("out")
    step(view, 1, {b"k": stable(1)})
    step(view, 1, shown={b"k": tentative(3), b"l": tentative(3)})
    assert step(
        view, 2, {b"k": stable(2)}, {b"k": tentative(3), b"l": tentative(3)}, undo=True
    ) == {b"k": ("tentative", b"t3", b"s2")}
    assert step(view, 3, {b"k": stable(3)}) == {
        b"k": ("insertion", b"s3", b"s3"),
        b"l": ("undo", None, None),
    }


def test_a_correction_under_a_newer_tentative_value_is_remembered() -> None:
    view = UpsertView("out")
    step(view, 1, shown={b"k": tentative(4)})
    assert step(view, 2, {b"k": stable(2)}) == {b"k": ("tentative", b"t4", b"s2")}
    assert step(view, 4) == {b"k": ("undo", b"s2", b"s2")}


def test_nothing_is_written_for_what_stays() -> None:
    view = UpsertView("out")
    step(view, 1, {b"k": stable(1)}, {b"l": tentative(3)})
    assert step(view, 2) == {}
    assert step(view, 2, shown={b"l": tentative(3)}, undo=True) == {}
    assert step(view, 2, shown={b"l": tentative(3, 2)}) == {b"l": ("tentative", b"t3", None)}


def test_a_view_read_back_goes_on_alike() -> None:
    view = UpsertView("out")
    writes: list[ViewRecord] = []
    for upto, inserted, shown in (
        (1, {b"k": stable(1), b"l": stable(1, 1)}, {}),
        (1, {}, {b"k": tentative(2), b"n": tentative(2)}),
    ):
        some = view.transaction(
            undo=False, insertions=inserted.items(), stable_upto=upto, tentative=shown.items()
        )
        view.apply(some)
        writes += some
    again = UpsertView("out")
    for write in writes:
        again.restore(write.key, write.state)
    again.apply(())
    for either in (view, again):
        assert {
            w.key: w.kind
            for w in either.transaction(undo=True, insertions=(), stable_upto=2, tentative=())
        } == {
            b"k": Kind.UNDO,
            b"n": Kind.UNDO,
        }
    again.restore(b"k", KeyState())
    assert len(again) == 2


def test_too_much_to_remember_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "UPSERT_BYTES_MAX", 1_000)
    view = UpsertView("out")
    for number in range(100):
        view.restore(b"k", KeyState(stable(number + 1)))
    for number in range(3):
        view.restore(b"%d" % number, KeyState(stable(1)))
    with pytest.raises(ConfigurationError, match="more than 1000 bytes"):
        view.restore(b"9", KeyState(stable(1)))
