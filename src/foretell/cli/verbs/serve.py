"""foretell serve: a page in the browser, and an API for programs."""

from __future__ import annotations

import importlib.util
import os

import click
import msgspec

from foretell.cli.stopping import telling
from foretell.errors import BadInput, MissingExtra

NEEDED = ("starlette", "uvicorn")


@click.command("serve", short_help="A page in the browser, and an API for programs.")
@click.option("--port", type=int, default=8765, metavar="N", help="The port (8765); 0: any free one.")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Where to listen (127.0.0.1: this machine only).")
@click.option("--name", "names", multiple=True, metavar="NAME", help="Another name of this machine.")
@click.option("--workers", type=int, default=2, metavar="N", help="Worker processes (2).")
@click.option("--seconds", type=float, default=20.0, metavar="S", help="Time limit of an answer (20).")
@click.option("--search-seconds", type=float, default=300.0, metavar="S", help="Time limit of a search (300).")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@click.option("--json", "as_json", is_flag=True, help="The address as one JSON object.")
def command(
    port: int,
    host: str,
    names: tuple[str, ...],
    workers: int,
    seconds: float,
    search_seconds: float,
    open_page: bool,
    as_json: bool,
) -> None:
    """A page with sliders for a plan, and an HTTP API with the answers of the verbs.

    Pick a model, a cluster and a batch; time, memory, bottlenecks and timeline
    change with every slider. Search, compare, share the address, download the
    report, the trace and the configuration. Nothing leaves this machine, and only
    pages of this server are answered. Ctrl-C ends it.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(f"the page needs {' and '.join(missing)}", fix="pip install 'foretell[serve]'")
    if not 1 <= workers <= 64:
        raise BadInput(f"{workers} workers", where="--workers", fix="1 to 64")
    if not 0 <= port <= 65535:
        raise BadInput(f"port {port}", where="--port", fix="1024 to 65535, or 0: any that is free")
    for value, option in ((seconds, "--seconds"), (search_seconds, "--search-seconds")):
        if not 0 < value < 1e6:
            raise BadInput(f"{value:g} seconds", where=option, fix=f"{option} 20")
    from foretell.serve.app import ServerLimits
    from foretell.serve.server import serve

    def ready(address: str) -> None:
        if as_json:
            click.echo(msgspec.json.encode({"url": address, "api": f"{address}openapi.json", "pid": os.getpid()}))
        else:
            click.echo(f"{address}  (the API: {address}openapi.json; Ctrl-C ends)")
        if host not in ("127.0.0.1", "::1", "localhost"):
            click.echo("note: whoever reaches this machine can ask; there is no password", err=True)
        if open_page:
            import webbrowser

            webbrowser.open(address)

    with telling(lambda: ("the page is closed, and kept nothing", "")):
        serve(host, port, names, ServerLimits(workers, seconds, search_seconds=search_seconds), ready)
