"""Access control of the page."""

from __future__ import annotations

import pytest

from anabranch.dashboard.access import COOKIE, Access


def test_on_loopback_only_names_of_loopback_lead_to_the_page() -> None:
    access = Access(None)
    assert all(
        access.is_host(host) for host in ("localhost:9180", "127.0.0.1", "[::1]:80", "[::1]")
    )
    assert not any(
        access.is_host(host)
        for host in ("", "evil.example:9180", "127.0.0.1.evil.example", "10.0.0.1")
    )
    assert access.admits({}, {})


def test_with_a_token_any_name_will_do_but_only_the_token_admits() -> None:
    access = Access("secret")
    assert access.is_host("pipelines.example")
    assert not access.admits({}, {})
    assert access.admits({"authorization": "Bearer secret"}, {})
    assert not access.admits({"authorization": "Bearer secre"}, {COOKIE: access.cookie()})
    assert access.admits({}, {COOKIE: access.cookie()})
    assert not access.admits({}, {COOKIE: Access("other").cookie()})


@pytest.mark.parametrize("given", ["", "secret ", "SECRET", "sécret", "\ud800"[:0]])
def test_another_text_is_not_the_token(given: str) -> None:
    assert not Access("secret").is_token(given)


def test_the_cookie_does_not_tell_the_token_and_holds_over_restarts() -> None:
    assert "secret" not in Access("secret").cookie()
    assert Access("secret").cookie() == Access("secret").cookie()
    assert not Access(None).is_token("")
