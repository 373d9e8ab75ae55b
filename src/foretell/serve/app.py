"""Requests to calls: what is asked is checked here, answered by a worker, and passed on."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from foretell.errors import ForetellError
from foretell.report.page import asset, figure_style
from foretell.serve import openapi, uploads
from foretell.serve.calls import JSON, call
from foretell.serve.choices import choices
from foretell.serve.crew import GONE, Crew
from foretell.serve.guards import HEALTH, Unfit, body
from foretell.serve.health import HealthCheck
from foretell.serve.problem import Problem
from foretell.serve.searches import Searches
from foretell.serve.worker import Reply, WorkerTask

PAGE: Final = Path(__file__).parent / "page"

LARGEST: Final = 64 * 1024
"""Bytes of the largest question."""

FILES: Final = {
    "/style.css": "text/css",
    "/chart.css": "text/css",
    "/serve.css": "text/css",
    "/page.js": "text/javascript",
    "/serve.js": "text/javascript",
}

ATTACHED: Final = {"report": "report.html", "trace": "trace.json"}
"""Answers that are files: a browser saves them, and shows none of them as a page of this server."""

Handler = Callable[[Request], Awaitable[Response]]


class ServerLimits(NamedTuple):
    """What one server does at most."""

    workers: int = 2
    seconds: float = 20.0  # for an answer
    searches: int = 1  # at a time
    search_seconds: float = 300.0


class ServerApp:
    """The handlers, and what they share."""

    def __init__(self, folder: Path, limits: ServerLimits) -> None:
        self.folder = folder
        self.crew = Crew(folder, limits.workers, limits.seconds)
        self.searches = Searches(folder, limits.searches, limits.search_seconds)
        self.checks = HealthCheck(self.crew)

    @contextlib.asynccontextmanager
    async def life(self, app: Starlette) -> AsyncGenerator[None]:
        self.crew.start()
        reading = asyncio.create_task(asyncio.to_thread(_choices))  # what every page asks first
        try:
            yield
        finally:
            reading.cancel()
            await self.searches.end()
            await self.crew.end()

    # the calls

    async def answer(self, name: str, request: Request) -> Response:
        task = await _task(name, request)
        return _passed_on(await awaited(request, self.crew.answer(task)), ATTACHED.get(name, ""))

    async def upload(self, request: Request) -> Response:
        content = await body(request, uploads.LARGEST, ("application/octet-stream", JSON, "text/plain"))
        if not content.strip():
            raise Unfit(422, "an empty file", "a config.json, a graph or a .net file")
        name = await asyncio.to_thread(uploads.keep, content, self.folder)
        task = WorkerTask("model", msgspec.json.encode({"model": name}))
        return _passed_on(await awaited(request, self.crew.answer(task)))

    async def start(self, request: Request) -> Response:
        found = self.searches.start(await _task("search", request))
        if found is None:
            raise Unfit(429, "too many searches at once", "stop one, or wait")
        return _json(found.told(), 202)

    async def watch(self, request: Request) -> Response:
        return _json(self._search(request).told())

    async def stop(self, request: Request) -> Response:
        found = self._search(request)
        self.searches.stop(found)
        return _json(found.told())

    def _search(self, request: Request) -> Any:
        try:
            return self.searches.get(request.path_params["id"])
        except ForetellError as problem:
            raise Unfit(404, problem.what, problem.fix) from None

    async def health(self, request: Request) -> Response:
        well = await self.checks.well()
        return _json({"ok": well}, 200 if well else 503)

    # what stays the same

    async def choices(self, request: Request) -> Response:
        return Response(await asyncio.to_thread(_choices), media_type=JSON)

    async def description(self, request: Request) -> Response:
        return Response(await asyncio.to_thread(openapi.description), media_type=JSON)


@functools.cache
def _choices() -> bytes:
    return msgspec.json.encode(choices())


async def _page(request: Request) -> Response:
    return Response(_index(), media_type="text/html")


async def _file(request: Request) -> Response:
    path = request.url.path
    own = PAGE / path[1:]
    text = own.read_text() if own.is_file() else asset(path[1:])
    return Response(text, media_type=FILES[path])


@functools.cache
def _index() -> str:
    return (PAGE / "index.html").read_text().replace("{figure style}", figure_style())


async def _task(name: str, request: Request) -> WorkerTask:
    """The call with its body, checked against its type."""
    given = await body(request, LARGEST, (JSON,))
    try:
        read = msgspec.json.decode(given, type=call(name).body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise Unfit(400, f"the body is not as it should be: {problem}", "GET /openapi.json describes it") from None
    return WorkerTask(name, msgspec.json.encode(read))


async def awaited(request: Request, answer: Coroutine[Any, Any, Reply]) -> Reply:
    """An answer, for as long as somebody waits for it: who hangs up keeps nobody from other questions."""
    asking, leaving = asyncio.create_task(answer), asyncio.create_task(_hangs_up(request))
    try:
        await asyncio.wait((asking, leaving), return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else GONE
    finally:
        asking.cancel()
        leaving.cancel()


async def _hangs_up(request: Request) -> None:
    """Wait until the connection ends; the body was read, so nothing else comes."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _passed_on(reply: Reply, file: str = "") -> Response:
    headers = {"content-disposition": f'attachment; filename="{file}"'} if file and reply.kind == "answer" else {}
    return Response(reply.body, reply.status, media_type=reply.media, headers=headers)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)


# what goes wrong


async def _unfit(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Unfit)
    return _json(problem.problem, problem.status)


async def _http(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    what = {404: "nothing is here", 405: f"{request.method} is not for this"}.get(problem.status_code, problem.detail)
    return Response(
        msgspec.json.encode(Problem(what, fix="GET /openapi.json describes what there is")),
        problem.status_code,
        media_type=JSON,
        headers=problem.headers,
    )


async def _mistake(request: Request, problem: Exception) -> Response:
    return _json(Problem("foretell made a mistake; the server's terminal shows where"), 500)


# all of it


def application(folder: Path, limits: ServerLimits) -> Starlette:
    """The server without its sockets and guards."""
    served = ServerApp(folder, limits)

    def calling(name: str) -> Handler:
        async def handler(request: Request) -> Response:
            return await served.answer(name, request)

        return handler

    routes = [
        Route("/", _page),
        *(Route(path, _file) for path in FILES),
        Route(HEALTH, served.health),
        Route("/openapi.json", served.description),
        Route("/api/choices", served.choices),
        Route("/api/models", served.upload, methods=["POST"]),
        Route("/api/searches", served.start, methods=["POST"]),
        Route("/api/searches/{id}", served.watch, methods=["GET"]),
        Route("/api/searches/{id}", served.stop, methods=["DELETE"]),
        *(Route(f"/api/{name}", calling(name), methods=["POST"]) for name in openapi.quick()),
    ]
    handlers: Any = {Unfit: _unfit, HTTPException: _http, Exception: _mistake}
    return Starlette(routes=routes, lifespan=served.life, exception_handlers=handlers)
