"""``local.status``: what a person is told of the detail. The rest is in ``test_cli``."""

from __future__ import annotations

import pytest

from anabranch.local.status import detail_in_words


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ({}, ""),
        ({"replica_state": "stable", "missing": []}, ""),
        ({"replica_state": "up_failure", "missing": ["reports_1", "reports_2"]}, "tentative: without reports_1, reports_2"),
        ({"replica_state": "up_failure", "missing": []}, "tentative"),
        ({"replica_state": "stabilization", "missing": []}, "correcting"),
        ({"replica_state": "stable", "unread": ["a", "b"]}, "no room for more of a, b: new results stand still"),
        ({"replica_state": "of a later version"}, ""),
        ({"replica_state": "stable", "given_up_ms": 100}, "results were given up: --json"),
        ({"live": "running", "live_failure": False}, ""),
        ({"live": "running", "live_failure": True}, "live topic tentative"),
        ({"live": "waiting: no answer", "live_failure": True}, "live topic waiting: no answer"),
        ({"topics": [], "index": "written"}, ""),
        ({"topics": ["a", "b"]}, "2 settings of topics give less than they must: --json"),
        (None, ""),
    ],
)
def test_what_is_not_as_it_should_be_is_said(detail: object, words: str) -> None:
    assert detail_in_words({"detail": detail}) == words
