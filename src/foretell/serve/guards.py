"""Who may ask: who has the token, from pages of this server and programs, not from pages of others.

Everybody on a machine reaches its ports, so a request has to bring the token that the terminal shows. Any page that a
person has open can send requests to this machine, and a name that somebody else owns can be made to lead here (DNS
rebinding): so a request has to name this server in its Host, and one that comes from a page has to come from a page of
this server. Bodies have a largest size and a longest time.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Collection
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foretell.serve.problem import Problem

LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")
"""What this machine is called on itself."""

BODY_SECONDS: Final = 10.0

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
"""With every answer: nothing is loaded from anywhere else, and nobody else shows it."""


HEALTH: Final = "/healthz"
"""Open to whoever asks, by whatever name: it says no more than whether all is well."""

BEARER: Final = "the header Authorization: Bearer TOKEN"

TOKEN: Final = re.compile(r"[A-Za-z0-9._~-]{16,200}")


class Unfit(Exception):
    """A request that is not answered."""

    def __init__(self, status: int, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.status, self.problem = status, Problem(what, fix=fix)


class Guarded:
    """An application behind the guards."""

    def __init__(self, app: ASGIApp, names: tuple[str, ...], port: int, token: str, public: Collection[str]) -> None:
        self.app, self.token, self.public = app, token.encode(), public
        self.cookie = f"foretell-{port}"  # a browser has one jar for all ports of a host
        self.hosts = {f"{name.lower()}:{port}" for name in names} | {name.lower() for name in names if port == 80}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        request = Request(scope)
        found = self.unfit(request)
        known = found is None and self._introduces(request)
        extra = HEADERS | ({"set-cookie": self._remembered()} if known else {})

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own: list[tuple[bytes, bytes]] = list(message.get("headers", []))
                own += [(name.encode(), value.encode()) for name, value in extra.items()]
                message = {**message, "headers": own}
            await send(message)

        if found is not None:
            await _refuse(with_headers, found)
            return
        await self.app(scope, receive, with_headers)

    def unfit(self, request: Request) -> Unfit | None:
        """Why a request is not answered, by what it says of where it goes and comes from."""
        if request.url.path == HEALTH and request.method == "GET":
            return None
        host = request.headers.get("host", "")
        if host.lower() not in self.hosts:
            return Unfit(421, "this server is not called that", f"http://{min(self.hosts)}/")
        origin = request.headers.get("origin")
        if origin is not None and _place(origin) not in self.hosts:
            return Unfit(403, "a page of another origin asks", "the page of this server")
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            if request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate":
                return self._stranger(request)  # a link that somebody follows
            return Unfit(403, "a page of another site asks", "the page of this server")
        return self._stranger(request)

    # the token

    def _stranger(self, request: Request) -> Unfit | None:
        """Why a request is not answered, by who sends it: a browser has a cookie, a program a header."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() in ("bearer", "token") and self._is_token(given.strip()):
            return None
        if request.url.path in self.public or self._is_token(request.cookies.get(self.cookie, "")):
            return None  # the page is the same for everybody, and a link from elsewhere brings no cookie
        return Unfit(401, "the token is missing or wrong", "the address that the terminal shows, or " + BEARER)

    def _introduces(self, request: Request) -> bool:
        """Whether this opens the page with the token in its address, and is to be known from then on."""
        return bool(self.token) and request.url.path == "/" and self._is_token(request.query_params.get("token", ""))

    def _is_token(self, given: str) -> bool:
        return not self.token or hmac.compare_digest(given.encode(errors="replace"), self.token)

    def _remembered(self) -> str:
        return f"{self.cookie}={self.token.decode()}; HttpOnly; SameSite=Strict; Path=/"


def _place(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""  # of nobody


async def _refuse(send: Send, found: Unfit) -> None:
    content = msgspec.json.encode(found.problem)
    headers: list[Any] = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    headers += [(b"www-authenticate", b"Bearer")] if found.status == 401 else []
    await send({"type": "http.response.start", "status": found.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def body(request: Request, most: int, media: tuple[str, ...]) -> bytes:
    """The body of a request, if it is of a kind, size and speed that is taken."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in media:
        raise Unfit(415, f"a body of type {kind[:60] or 'nothing'}", f"content-type: {media[0]}")
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length[:12]) > most:
        raise Unfit(413, f"a body of more than {most:,} bytes", "a smaller one")
    try:
        return await asyncio.wait_for(_read(request, most), BODY_SECONDS)
    except TimeoutError:
        raise Unfit(408, f"the body took longer than {BODY_SECONDS:g} seconds") from None
    except ClientDisconnect:
        raise Unfit(400, "the body ended early") from None


async def _read(request: Request, most: int) -> bytes:
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most:
            raise Unfit(413, f"a body of more than {most:,} bytes", "a smaller one")
    return bytes(found)
