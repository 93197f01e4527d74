"""HTTP application of the page: its files, its state as JSON, its changes as server-sent events.

It is read-only. The headers of every answer forbid the browser to load, run or send anything beyond
this page, and to embed it in another; no answer allows another origin to read it. Texts from logs
and processes are sent as JSON, and the page shows them as text, never as HTML.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from anabranch.dashboard.access import COOKIE, Access
from anabranch.dashboard.broadcast import Broadcast, Client

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from anabranch.dashboard.dead_letters import DeadLetterFollower
    from anabranch.dashboard.feed import PageFeed

EVERY_S: Final = 0.5
_ALIVE_S: Final = 10.0
"""Interval between comments on an event stream without messages, in seconds. Sending one is the
only way to find out that a connection is dead.
"""
_SEND_S: Final = 20.0
_FORM_BYTES_MAX: Final = 4_096
_FORM_S: Final = 5.0
_WRONG_TOKEN_S: Final = 1.0
_LOGINS_MAX: Final = 4
"""Maximum number of wrong tokens whose answers are being delayed. More are rejected at once, so
that guessing is limited to this many tokens per _WRONG_TOKEN_S.
"""
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_OPEN: Final = frozenset({"/login", "/healthz", "/readyz", "/assets/page.css", "/assets/icon.svg"})
"""Paths that are answered without a token."""
_HEADERS: Final = (
    (
        "content-security-policy",
        (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src"
            " 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
            " require-trusted-types-for 'script'; trusted-types 'none'"
        ),
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ("cache-control", "no-store"),
)


class Guard:
    """Middleware around all routes: checks name and token, adds the security headers, and limits
    the time of a send.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        """Guard ``app`` by the rules of ``access``."""
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in _HEADERS),
                ]
            # A client that does not read would hold its connection for ever.
            async with asyncio.timeout(_SEND_S):
                await send(message)

        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        answer: ASGIApp = self._app
        if not self._access.is_host(headers.get("host", "")):
            answer = PlainTextResponse("this page is not served under that name\n", 421)
        elif scope["path"] not in _OPEN and not self._access.admits(headers, _cookies(headers)):
            answer = (
                _asset("login.html", 401)
                if scope["path"] == "/"
                else PlainTextResponse("a token is needed\n", 401)
            )
        await answer(scope, receive, guarded)


class PageServer:
    """Application with the page's routes. ``app`` is its ASGI entry."""

    def __init__(self, feed: PageFeed, dead_letters: DeadLetterFollower, access: Access) -> None:
        """Serve the page of ``feed``, and the contents of ``dead_letters``."""
        self._feed = feed
        self._dead_letters = dead_letters
        self._access = access
        self._broadcast = Broadcast()
        self._wrong = 0
        """Number of wrong tokens whose answers are being delayed."""
        assets = [
            Route(f"/assets/{name}", _serving(name))
            for name in sorted(
                each.name for each in files(__package__).joinpath("assets").iterdir()
            )
            if not name.endswith(".html")
        ]
        self.app: ASGIApp = Guard(
            Starlette(
                routes=[
                    Route("/", _serving("index.html")),
                    *assets,
                    Route("/healthz", _healthz),
                    Route("/readyz", _healthz),
                    Route("/login", self._login, methods=["POST"]),
                    Route("/api/page", self._whole),
                    Route("/api/events", self._events),
                    Route("/api/dead-letter/{source}/{place:path}", self._dead_letter),
                ],
                lifespan=self._lifespan,
            ),
            access,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        publishing = asyncio.create_task(self._publish())
        yield
        publishing.cancel()

    async def _publish(self) -> None:
        """Send the changes to all clients twice a second, while there are any."""
        while True:
            await self._broadcast.joined.wait()
            self._broadcast.publish(await asyncio.to_thread(self._feed.message))
            await asyncio.sleep(EVERY_S)

    def end(self) -> None:
        """End all event streams. The event loop's thread must call this."""
        self._broadcast.end()

    async def _whole(self, _request: Request) -> Response:
        _, text = await asyncio.to_thread(self._feed.whole)
        return Response(text, media_type="application/json")

    async def _events(self, _request: Request) -> Response:
        client = self._broadcast.join()
        if client is None:
            return PlainTextResponse(
                "too many look at this page\n", 503, headers={"retry-after": "10"}
            )
        return StreamingResponse(self._stream(client), media_type="text/event-stream")

    async def _stream(self, client: Client) -> AsyncIterator[str]:
        """Yield the whole state, then each newer message, as server-sent events.

        The client joined before the state was taken, so messages that the state includes may wait
        for it. Their numbers tell, and they are skipped.
        """
        try:
            number, text = await asyncio.to_thread(self._feed.whole)
            yield f"retry: 1000\n\ndata: {text}\n\n"
            while True:
                try:
                    message = await client.next(_ALIVE_S)
                except TimeoutError:
                    yield ": alive\n\n"
                    continue
                if message is None:
                    return
                if message[0] > number:
                    yield f"data: {message[1]}\n\n"
        finally:
            self._broadcast.leave(client)

    async def _dead_letter(self, request: Request) -> Response:
        source, place = request.path_params["source"], request.path_params["place"]
        content = self._dead_letters.content(source, place)
        if content is None:
            return PlainTextResponse("none of the newest dead letters\n", 404)
        return JSONResponse(content)

    async def _login(self, request: Request) -> Response:
        """Set the cookie for a right token; delay the answer to a wrong one."""
        if not self._access.needs_token:
            return PlainTextResponse("no token is needed\n", 404)
        try:
            async with asyncio.timeout(_FORM_S):
                body = await _body(request)
        except TimeoutError:
            return PlainTextResponse("too slow\n", 408)
        if body is None:
            return PlainTextResponse("too large\n", 413)
        given = parse_qs(body.decode("utf-8", "replace"), max_num_fields=4).get("token", [""])[0]
        if self._access.is_token(given):
            answer = Response(status_code=303, headers={"location": "/"})
            answer.set_cookie(
                COOKIE,
                self._access.cookie(),
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )
            return answer
        if self._wrong >= _LOGINS_MAX:
            return PlainTextResponse("too many wrong tokens at once\n", 429)
        self._wrong += 1
        try:
            await asyncio.sleep(_WRONG_TOKEN_S)
        finally:
            self._wrong -= 1
        return _asset("wrong.html", 401)


async def _body(request: Request) -> bytes | None:
    """Read the body of a form; None: it is too large."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _FORM_BYTES_MAX:
            return None
    return body


def _cookies(headers: dict[str, str]) -> dict[str, str]:
    """Return the cookies of a request by name."""
    pairs = (each.strip().partition("=") for each in headers.get("cookie", "").split(";"))
    return {name: value for name, _, value in pairs}


def _asset(name: str, status: int = 200) -> Response:
    content = files(__package__).joinpath("assets", name).read_bytes()
    return Response(content, status, media_type=_TYPES[name.rpartition(".")[2]])


def _serving(name: str) -> Any:
    """Return a route's function that answers with the asset ``name``."""

    async def serve(_request: Request) -> Response:
        return _asset(name)

    return serve


async def _healthz(_request: Request) -> Response:
    return PlainTextResponse("ok\n")
