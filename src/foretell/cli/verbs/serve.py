"""foretell serve: a page in the browser, and an API for programs."""

from __future__ import annotations

import importlib.util
import os
import secrets
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli.stopping import telling
from foretell.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from foretell.serve.app import ServerLimits
    from foretell.serve.server import ServerPlace

NEEDED = ("starlette", "uvicorn")

VARIABLE = "FORETELL_TOKEN"


@click.command("serve", short_help="A page in the browser, and an API for programs.")
@click.option("--port", type=int, default=8765, metavar="N", help="The port (8765); 0: any free one.")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Where to listen (127.0.0.1: this machine only).")
@click.option("--name", "names", multiple=True, metavar="NAME", help="Another name of this machine.")
@click.option("--token", default="", envvar=VARIABLE, metavar="TEXT", help=f"The token (a new one); or {VARIABLE}.")
@click.option("--no-token", is_flag=True, help="Answer whoever reaches the port.")
@click.option("--workers", type=int, default=2, metavar="N", help="Worker processes (2).")
@click.option("--seconds", type=float, default=20.0, metavar="S", help="Time limit of an answer (20).")
@click.option("--search-seconds", type=float, default=300.0, metavar="S", help="Time limit of a search (300).")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@click.option("--json", "as_json", is_flag=True, help="The address as one JSON object.")
def command(open_page: bool, as_json: bool, **options: Any) -> None:
    """A page with sliders for a plan, and an HTTP API with the answers of the verbs.

    Pick a model, a cluster and a batch; time, memory, bottlenecks and timeline
    change with every slider. Search, compare, share the address, download the
    report, the trace and the configuration. Nothing leaves this machine, and only
    who has the token in the printed address is answered. Ctrl-C ends it.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(f"the page needs {' and '.join(missing)}", fix="pip install 'foretell[serve]'")
    from foretell.serve.server import serve

    limits = _limits(*(options.pop(name) for name in ("workers", "seconds", "search_seconds")))
    place = _place(**options)

    def ready(address: str) -> None:
        page = f"{address}?token={place.token}" if place.token else address
        if as_json:
            said = {"url": address, "api": f"{address}openapi.json", "token": place.token, "pid": os.getpid()}
            click.echo(msgspec.json.encode(said))
        else:
            click.echo(f"{page}  (the API: {address}openapi.json; Ctrl-C ends)")
        if not place.token and place.host not in ("127.0.0.1", "::1", "localhost"):
            click.echo("note: whoever reaches this machine can ask; there is no token", err=True)
        if open_page:
            import webbrowser

            webbrowser.open(page)

    with telling(lambda: ("the page is closed, and kept nothing", "")):
        serve(place, limits, ready)


def _place(host: str, port: int, names: tuple[str, ...], token: str, no_token: bool) -> ServerPlace:
    from foretell.serve.guards import TOKEN
    from foretell.serve.server import ServerPlace

    os.environ.pop(VARIABLE, None)  # no process that is started from here needs it
    if not 0 <= port <= 65535:
        raise BadInput(f"port {port}", where="--port", fix="1024 to 65535, or 0: any that is free")
    if no_token and token:
        raise BadInput("a token and none", where="--no-token", fix=f"one of --token (or {VARIABLE}) and --no-token")
    if token and not TOKEN.fullmatch(token):
        what = f"a token of {len(token)} characters that cannot be one"  # which it is is nobody else's business
        raise BadInput(
            what, where="--token", fix="16 to 200 letters, digits and . _ ~ -; without it, a new one is made"
        )
    return ServerPlace(host, port, names, "" if no_token else token or secrets.token_hex(24))


def _limits(workers: int, seconds: float, search_seconds: float) -> ServerLimits:
    from foretell.serve.app import ServerLimits

    if not 1 <= workers <= 64:
        raise BadInput(f"{workers} workers", where="--workers", fix="1 to 64")
    for value, option in ((seconds, "--seconds"), (search_seconds, "--search-seconds")):
        if not 0 < value < 1e6:
            raise BadInput(f"{value:g} seconds", where=option, fix=f"{option} 20")
    return ServerLimits(workers, seconds, search_seconds=search_seconds)
