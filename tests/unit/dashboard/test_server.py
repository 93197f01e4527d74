"""The page over HTTP: access control, routes, and the headers of every answer."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from importlib.resources import files
from urllib.parse import urlsplit

import pytest

from anabranch.dashboard.broadcast import CLIENTS_MAX
from harness.page_scenes import PageScene, page_of
from harness.waiting import wait_until

Answer = tuple[int, Mapping[str, str], bytes]


def ask(
    url: str,
    path: str,
    method: str = "GET",
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def open_page() -> Iterator[str]:
    scene = PageScene(past_ms=5_000)
    with page_of(scene.pipeline, scene.log) as (_, url):
        yield url


@pytest.fixture(scope="module")
def closed_page() -> Iterator[str]:
    scene = PageScene(past_ms=5_000)
    with page_of(scene.pipeline, scene.log, token="secret") as (_, url):
        yield url


ASSETS = sorted(each.name for each in files("anabranch.dashboard").joinpath("assets").iterdir())


@pytest.mark.parametrize("path", ["/", "/api/page", "/nowhere", "/assets/page.js", "/healthz"])
def test_every_answer_forbids_browsers_what_the_page_does_not_need(
    open_page: str, path: str
) -> None:
    _, headers, _ = ask(open_page, path)
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert not [name for name in headers if name.startswith("access-control")]
    assert "server" not in headers


def test_no_other_origin_may_read_it(open_page: str) -> None:
    foreign = {"origin": "https://evil.example"}
    for method in ("GET", "OPTIONS"):
        _, headers, _ = ask(open_page, "/api/page", method, headers=foreign)
        assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("name", ASSETS)
def test_assets_name_no_other_place_and_hold_no_script_or_style_inline(name: str) -> None:
    text = files("anabranch.dashboard").joinpath("assets", name).read_text()
    addresses = re.findall(r"""https?:[^\s"'`]*|["'`(]//[^\s"'`]*""", text)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    for dangerous in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert dangerous not in text
    if name.endswith(".html"):
        assert "<style" not in text
        assert " style=" not in text
        assert "onclick" not in text
        assert all("src=" in piece.split(">")[0] for piece in text.split("<script")[1:])


def test_the_page_and_its_state_are_served(open_page: str) -> None:
    status, headers, body = ask(open_page, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"/assets/page.js" in body
    status, headers, body = ask(open_page, "/api/page")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body)["pipeline"]["name"] == "toll-road"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_under_a_foreign_name_loopback_shows_nothing(open_page: str, host: str) -> None:
    for path in ("/", "/api/page", "/api/events", "/assets/page.js"):
        status, _, body = ask(open_page, path, headers={"host": host})
        assert status == 421
        assert b"toll-road" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(open_page: str, method: str) -> None:
    for path in ("/", "/api/page", "/api/events", "/api/dead-letter/reports_0/0/1"):
        assert ask(open_page, path, method, "x")[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../server.py",
        "/assets/%2e%2e/server.py",
        "/assets/index.html",
        "/api/dead-letter/reports_0/../../x",
        "/api/dead-letter/nobody/0/1",
        "/" + "a" * 10_000,
    ],
)
def test_only_what_is_listed_is_served(open_page: str, path: str) -> None:
    assert ask(open_page, path)[0] in (400, 404)


def test_without_the_token_nothing_is_shown(closed_page: str) -> None:
    status, _, body = ask(closed_page, "/")
    assert status == 401
    assert b"<form" in body
    for path in ("/api/page", "/api/events", "/assets/page.js", "/api/dead-letter/reports_0/0/0"):
        status, _, body = ask(closed_page, path)
        assert status == 401
        assert b"toll-road" not in body
    for wrong in ("Bearer secre", "Basic secret", "Bearer ", "secret"):
        assert ask(closed_page, "/api/page", headers={"authorization": wrong})[0] == 401
    assert ask(closed_page, "/healthz")[0] == 200


def test_with_the_token_a_program_and_a_browser_come_in(closed_page: str) -> None:
    assert ask(closed_page, "/api/page", headers={"authorization": "Bearer secret"})[0] == 200
    status, headers, _ = ask(closed_page, "/login", "POST", "token=secret")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "secret" not in cookie
    only = {"cookie": cookie.partition(";")[0]}
    assert ask(closed_page, "/api/page", headers=only)[0] == 200


def test_a_wrong_token_or_a_large_form_is_not_taken(closed_page: str) -> None:
    status, headers, _ = ask(closed_page, "/login", "POST", "token=wrong")
    assert status == 401
    assert "set-cookie" not in headers
    assert ask(closed_page, "/login", "POST", "token=" + "x" * 100_000)[0] == 413


def events_of(url: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request("GET", "/api/events")
    return connection, connection.getresponse()


def next_event(answer: http.client.HTTPResponse) -> dict[str, object]:
    while True:
        line = answer.readline()
        if not line:
            raise ConnectionError("closed")
        if line.startswith(b"data: "):
            found = json.loads(line[6:])
            assert isinstance(found, dict)
            return found


def test_a_client_gets_the_full_state_then_the_changes() -> None:
    scene = PageScene(past_ms=5_000)
    with page_of(scene.pipeline, scene.log) as (feed, url):
        connection, answer = events_of(url)
        assert answer.getheader("content-type", "").startswith("text/event-stream")
        assert next_event(answer)["whole"]
        with feed.page() as page:
            page.add_event(1, "alarm", "tolls", "</script><b>\n\ndata: forged")
        found: object = None
        while found is None:
            found = next_event(answer).get("events")
        assert isinstance(found, list)
        assert found[0]["text"] == "</script><b>\n\ndata: forged", "no line of it is one of ours"
        connection.close()


def test_more_clients_than_the_limit_are_rejected() -> None:
    scene = PageScene(past_ms=5_000)
    with page_of(scene.pipeline, scene.log) as (_, url), ExitStack() as stack:
        first = events_of(url)
        next_event(first[1])
        for _ in range(CLIENTS_MAX - 1):
            connection, answer = events_of(url)
            stack.callback(connection.close)
            assert answer.status == 200
        connection, answer = events_of(url)
        stack.callback(connection.close)
        assert answer.status == 503
        assert ask(url, "/api/page")[0] == 200
        first[0].close()
        first[1].close()


def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.dashboard.serving._REQUEST_S", 0.2)
    scene = PageScene(past_ms=5_000)
    with page_of(scene.pipeline, scene.log) as (_, url):
        for begun in (b"", b"GET / HTT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET"):
            with (
                socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), 30) as client,
                suppress(ConnectionError),  # it was let go before it said so much
            ):
                client.sendall(begun)
                while client.recv(4_096):
                    pass

        def stays() -> bool:
            """Unless this machine is too slow to ask in time."""
            try:
                connection, answer = events_of(url)
            except (OSError, http.client.HTTPException):
                return False
            with closing(connection):
                next_event(answer)
                return bool(next_event(answer))

        wait_until(stays, 60, "one whose request is answered stays")


def test_a_form_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.dashboard.server._FORM_S", 0.2)
    scene = PageScene(past_ms=5_000)
    with (
        page_of(scene.pipeline, scene.log, token="secret") as (_, url),
        socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), 30) as client,
    ):
        client.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\ntok")
        assert client.recv(64).split()[1] == b"408"
