"""foretell lab: several hosts on this machine, joined by links of a known rate and delay."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli.disturbance_options import disturbed, typed
from foretell.cli.stopping import telling
from foretell.errors import BadInput, ForetellError
from foretell.files import append_lines

if TYPE_CHECKING:
    from foretell.hardware.disturbance import Disturbance
    from foretell.lab.network import LabNetwork

_NETWORK = (
    click.option("--hosts", type=int, default=2, metavar="N", help="Emulated hosts (2)."),
    click.option("--rate", default="1Gbit", metavar="RATE", help="Of every host's port, each way (1Gbit)."),
    click.option("--delay", default="0.5ms", metavar="TIME", help="One way between two hosts (0.5ms)."),
    click.option("--island", type=int, default=0, metavar="N", help="Hosts of an island, which share a way out."),
    click.option("--uplink", default="", metavar="RATE,TIME", help="The way out of an island: 100Mbit,2ms."),
    click.option("--port", "ports", multiple=True, metavar="HOST:RATE", help="A host with another port: 1:100Mbit."),
    click.option("--link", "links", multiple=True, metavar="A-B:RATE,TIME", help="A pair with a link of its own."),
)

_PER_HOST = click.option(
    "--per-host",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Ranks of a host (1).",
)


def networked(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that make a network; it gets the network."""

    @functools.wraps(verb)
    def called(**options: Any) -> Any:
        from foretell.lab import text

        names = {"hosts": "hosts", "rate": "speed", "delay": "apart", "island": "island", "uplink": "uplink"}
        given = {word: options.pop(name) for name, word in (names | {"ports": "ports", "links": "links"}).items()}
        with telling(lambda: ("nothing was saved, and no host is left", "")):
            return verb(text.network(**given), **options)

    for option in reversed(_NETWORK):
        called = option(called)
    return called


@click.group("lab", short_help="Several hosts on this machine: measure and run across them.")
def command() -> None:
    """Several hosts on this machine, joined by links of a known rate and delay.

    The hosts are network namespaces, so this needs root (or its rights) on
    Linux, and a C compiler. No host is left when the command ends, however.
    """


@command.command("selftest", short_help="What rate and delay the hosts attain.")
@networked
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def selftest(network: LabNetwork, as_json: bool) -> None:
    """Messages between pairs of hosts: the rate and the delay that were asked
    for, and those that are attained."""
    from foretell.cli import lab_pages
    from foretell.lab.hosts import Lab
    from foretell.lab.measure import selftested, software
    from foretell.lab.stolen import Stolen

    stolen = Stolen()
    with Lab(network) as lab:
        found = selftested(lab)
        takes = software(lab, found)
    if as_json:
        answer = {"overhead": takes.message, "start": takes.start, "beside": takes.beside, "stolen": stolen.share()}
        click.echo(msgspec.json.encode({"pairs": [one._asdict() for one in found], **answer}))
    else:
        click.echo(lab_pages.selftest(found, takes, stolen.share()))


@command.command("describe", short_help="Write the lab as a cluster that `predict --on` takes.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@networked
@_PER_HOST
@click.option("--overhead", metavar="TIME", help="Of a message beside its delay (the self-test finds out).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def describe(network: LabNetwork, file: Path, per_host: int, overhead: str | None, as_json: bool) -> None:
    """Write FILE.toml, the cluster that this network is, and its links beside it.

    Without --overhead the hosts come up once, and the time that a message
    takes beside delay and bytes is measured.
    """
    from foretell.lab import text

    extra = text.delay(overhead, "--overhead") if overhead else _overhead(network)
    files = [str(one) for one in _described(network, extra, file, per_host)]
    if as_json:
        click.echo(msgspec.json.encode({"files": files, "overhead": extra}))
        return
    click.echo(f"written: {', '.join(files)}\nuse it: foretell predict ... --on {file}")


def _overhead(network: LabNetwork) -> float:
    from foretell.lab.hosts import Lab
    from foretell.lab.measure import overhead, selftested

    with Lab(network) as lab:
        return overhead(selftested(lab))


def _described(network: LabNetwork, extra: float, file: Path, per_host: int) -> list[Path]:
    from foretell.lab import describe

    if file.suffix != ".toml":
        raise BadInput(f"{file} is no name of a cluster's file", where="FILE", fix=f"{file}.toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    return describe.write(describe.described(network, extra, per_host=per_host), file)


@command.command("measure", short_help="Every collective algorithm beside its formula.")
@networked
@click.option("--algorithm", "algorithms", multiple=True, metavar="NAME", help="Only these: ring, ps:2, rabenseifner.")
@click.option("--sizes", default="", metavar="LIST", help="Bytes of the tensors: 1KiB,1MiB.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, metavar="N", help="Of each (5).")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Raw samples, added as JSON lines.")
@click.option("--timeout", type=float, default=600.0, metavar="SECONDS", help="Until it is given up (600).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def measure(
    network: LabNetwork,
    algorithms: tuple[str, ...],
    sizes: str,
    repeats: int,
    out: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Do collectives between the hosts by algorithms of our own, a rank each, and
    put the latency-bandwidth formula beside what they took."""
    from foretell.cli import lab_pages
    from foretell.lab.hosts import Lab
    from foretell.lab.measure import SIZES, cases, measured, orders, summary

    wanted = cases(network, [_algorithm(text, network.hosts) for text in algorithms], _sizes(sizes) or SIZES, repeats)
    with Lab(network) as lab:
        rows = measured(lab, wanted, timeout)
    if out:
        append_lines(out, *map(msgspec.json.encode, rows))
    if as_json:
        click.echo(msgspec.json.encode({"rows": rows, "summary": summary(rows), "orders": orders(rows)}))
    else:
        click.echo(lab_pages.measured(rows))


@command.command("crossover", short_help="From which size on one algorithm is faster than another.")
@networked
@click.option("--algorithm", "algorithms", multiple=True, metavar="NAME", help="Only these: ring, ps:2, rabenseifner.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, metavar="N", help="Of each (5).")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Raw samples, added as JSON lines.")
@click.option("--timeout", type=float, default=600.0, metavar="SECONDS", help="Until it is given up (600).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def crossover(
    network: LabNetwork, algorithms: tuple[str, ...], repeats: int, out: Path | None, timeout: float, as_json: bool
) -> None:
    """Where the formulas of two algorithms cross, and where what they take does.

    Both are timed at five sizes around the size at which they should take the
    same.
    """
    from foretell.cli import lab_pages
    from foretell.lab import crossover as crossovers
    from foretell.lab.describe import described
    from foretell.lab.hosts import Lab
    from foretell.lab.measure import everything, measured, software

    wanted = [_algorithm(text, network.hosts) for text in algorithms] or everything(network)
    if len(set(wanted)) < 2:
        fix = f"--algorithm {wanted[0]} --algorithm {'ring' if wanted[0] != 'ring' else 'butterfly'}"
        raise BadInput(f"{wanted[0]} alone crosses nothing", where="--algorithm", fix=fix)
    with Lab(network) as lab:
        takes = software(lab)
        expected = crossovers.expected(described(network, takes.message), wanted, software=takes)
        rows = measured(lab, crossovers.cases(expected, network.hosts, repeats), timeout) if expected else []
    found = crossovers.measured(expected, rows) if rows else []
    if out:
        append_lines(out, *map(msgspec.json.encode, rows))
    if as_json:
        click.echo(msgspec.json.encode({"crossovers": found, "rows": rows}))
    else:
        click.echo(lab_pages.crossovers(found))


def _algorithm(text: str, hosts: int) -> str:
    """The full name of an algorithm that so many hosts can do; what is wrong with it is said of this option, not of the
    one of `foretell run`."""
    from foretell.runtime.collectives import chosen

    try:
        found = chosen(text)
        found.check(hosts)
        return found.text
    except ForetellError as problem:
        raise type(problem)(problem.what, where="--algorithm", fix=problem.fix) from None


def _name(network: LabNetwork, extra: float, per_host: int) -> str:
    """The same for the same network, and for no other."""
    return f"lab-{hashlib.sha256(msgspec.json.encode((repr(network), extra, per_host))).hexdigest()[:12]}"


def _sizes(text: str) -> list[int]:
    from foretell.hardware import quantity

    return [round(quantity.parse(word, "memory", "--sizes")) for word in text.split(",") if word.strip()]


@command.command(
    "run",
    short_help="foretell run, a rank on every host.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True},
)
@networked
@disturbed
@_PER_HOST
@click.option("--describe", "file", type=click.Path(dir_okay=False, path_type=Path), help="Keep the cluster's file.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    network: LabNetwork, disturbance: Disturbance, per_host: int, file: Path | None, arguments: tuple[str, ...]
) -> Any:
    """foretell run with a rank on every host (or --per-host of them), in order.

    Takes all that `foretell run` takes: MODEL --plan TEXT --batch N --compare.
    The comparison is with this network, as the self-test finds it, when nothing
    disturbs it. What describes it stays in the folder of records, because the
    run's record names it; --describe puts it elsewhere.
    """
    from foretell.cli.verbs.run import command as run_command
    from foretell.cli.verbs.run import ranks_of
    from foretell.lab.hosts import Lab
    from foretell.lab.measure import overhead, selftested
    from foretell.lab.network import check_traffic, slowed
    from foretell.lab.traffic import sending
    from foretell.records.home import home
    from foretell.runtime import hosts

    if any(word == "--on" or word.startswith("--on=") for word in arguments):
        raise BadInput("--on is this network", where="foretell lab run", fix="--hosts, --rate and --delay")
    if per_host > 1 and (disturbance.links or disturbance.traffic):
        what = "links are between hosts, and a host has several ranks"
        raise BadInput(what, where="--slow-link, --traffic", fix="one rank on each host")
    disturbance.check(network.hosts * per_host)
    _check_ranks(ranks_of(arguments), network.hosts, per_host)
    slow = slowed(network, disturbance.links)
    check_traffic(slow, disturbance.traffic)
    with Lab(slow) as lab:
        extra = overhead(selftested(lab))
        cluster = file or home() / "labs" / f"{_name(network, extra, per_host)}.toml"  # the record names it
        _described(network, extra, cluster, per_host)
        with hosts.on_hosts([host.namespace for host in lab.hosts]), sending(lab, disturbance.traffic):
            words = [*arguments, *typed(disturbance), "--on", str(cluster)]
            return run_command.main(words, standalone_mode=False)


def _check_ranks(ranks: int, hosts: int, per_host: int) -> None:
    """Refuse a plan whose ranks are not those of the hosts: it would be compared with another network."""
    from foretell.lab.network import MOST_HOSTS

    if ranks == hosts * per_host:
        return
    fixes = [f"a plan of {hosts * per_host} ranks"]
    if not ranks % hosts:
        fixes.insert(0, f"--per-host {ranks // hosts}")
    if not ranks % per_host and 2 <= ranks // per_host <= MOST_HOSTS:
        fixes.insert(0, f"--hosts {ranks // per_host}")
    each = "a rank" if per_host == 1 else f"{per_host} ranks"
    what = f"the plan has {ranks} rank{'s' * (ranks > 1)}, and there are {hosts} hosts with {each} each"
    raise BadInput(what, where="--hosts, --per-host", fix=", or ".join(fixes[:2]))
