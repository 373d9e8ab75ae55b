"""One page about any member of a set: device, link, cluster, strategy, policy, schedule, trainer or model.

A page is figures with their sources, some text, and references. What it shows is what the member itself
says; nothing is written here about any member in particular.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from foretell.cli.table import WIDTH
from foretell.errors import BadInput, ForetellError, UnknownName, near
from foretell.hardware.quantity import show
from foretell.units import show_bytes, show_count, show_flops

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster
    from foretell.plan.policy import Policy
    from foretell.plan.schedule import Schedule
    from foretell.plan.strategy import MeshAxis, Strategy

SMALL = ((4, 8), (4, 4), (2, 4), (2, 2))
"""Pipelines that are drawn, ranks and micro-batches: the first that the schedule accepts and eighty columns hold."""


class Figure(NamedTuple):
    """One line: a name, a value, and where the value comes from (nothing: it needs no source)."""

    name: str
    value: str
    source: str = ""
    more: str = ""  # a second source, of another part of the value


class Page(NamedTuple):
    """All that is said about one member."""

    kind: str
    name: str
    title: str
    figures: tuple[Figure, ...]
    texts: tuple[str, ...]
    references: tuple[str, ...]
    data: Any  # the member itself, as programs read it

    def render(self) -> str:
        """The page, eighty columns wide."""
        sources = list(dict.fromkeys(text for figure in self.figures for text in (figure.source, figure.more) if text))
        parts = [_folded(f"{self.name} is a {self.kind}: {self.title}", "  ")]
        if self.figures:
            parts.append("\n".join(_lines(self.figures, sources)))
        parts += self.texts
        if sources:
            parts.append("\n".join(["sources", *(_numbered(at, text) for at, text in enumerate(sources, 1))]))
        if self.references:
            parts.append("\n".join(["references", *(_folded(f"  {text}", "    ") for text in self.references)]))
        return "\n\n".join(part for part in parts if part)

    def json(self) -> dict[str, Any]:
        """The same for programs: figures in SI units, as the member has them."""
        return {"kind": self.kind, "name": self.name, "title": self.title, self.kind: self.data}


def _lines(figures: Iterable[Figure], sources: list[str]) -> Iterator[str]:
    wide = max(len(figure.name) for figure in figures) + 2
    for figure in figures:
        numbers = dict.fromkeys(sources.index(text) + 1 for text in (figure.source, figure.more) if text)
        marks = "".join(f" [{number}]" for number in numbers)
        yield _folded(f"{figure.name:<{wide}}{figure.value}{marks}", " " * wide)


def _numbered(at: int, text: str) -> str:
    mark = f"  [{at}] "
    return _folded(f"{mark}{text}", " " * len(mark))


def _folded(text: str, indent: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


# finding


def page(name: str, kind: str = "") -> Page:
    """The page about what a name means: in one set, or in the only one that has it."""
    if kind:
        return _in_set(kind, name)
    known = {one: [item.lower() for item in names()] for one, names in NAMES.items()}
    holding = [one for one, names in known.items() if name.lower() in names]
    if len(holding) > 1:
        fix = " or ".join(f"foretell describe {one} {name}" for one in holding)
        raise BadInput(f"{name} is a {' and a '.join(holding)}", where="describe", fix=fix)
    if holding:
        return PAGES[holding[0]](name)
    return _by_text(name)


def _in_set(kind: str, name: str) -> Page:
    if kind not in PAGES:
        close = near(kind, PAGES)
        raise BadInput(f"no kind of member is called {kind!r}", fix=", ".join(close or PAGES))
    return PAGES[kind](name)


def _by_text(text: str) -> Page:
    """What is no name but means something: `dp8:zero3`, `+bf16`, `64xh100`, `llama3-8b:layers=16`, a file."""
    if text.startswith("+"):
        return _policy(text)
    kinds: list[str] = []
    axis = re.match(r"([a-z]+)[0-9]", text.lower())
    if axis and axis[1] in NAMES["strategy"]():
        kinds.append("strategy")
    if re.match(r"[0-9]+x", text) or text.endswith(".toml") or re.fullmatch(r".+:[0-9]+", text):
        kinds.append("cluster")
    if text.partition(":")[0] in NAMES["model"]() or "/" in text or text.endswith((".json", ".net")) or ".py:" in text:
        kinds.append("model")
    problems: list[ForetellError] = []
    for kind in kinds:
        try:
            return PAGES[kind](text)
        except ForetellError as problem:
            problems.append(problem)
    raise next((problem for problem in problems if not isinstance(problem, UnknownName)), None) or _unknown(text)


def _unknown(text: str) -> UnknownName:
    """Near names of all sets, each with its set."""
    homes = {name.lower(): kind for kind, names in NAMES.items() for name in names()}
    close = near(text, homes)
    fix = ", ".join(f"{name} ({homes[name]})" for name in close) or f"foretell list {{{', '.join(LISTED)}}}"
    return UnknownName(f"nothing is called {text!r}", fix=fix)


LISTED = ("models", "devices", "links", "clusters", "strategies", "policies", "schedules", "trainers")


def _device_names() -> list[str]:
    from foretell.hardware import members

    return [*members.names("devices"), *members.aliases()]


def _link_names() -> list[str]:
    from foretell.hardware import members

    return list(members.names("links"))


def _cluster_names() -> list[str]:
    from foretell.hardware import members

    return [*members.names("clusters"), "this-machine"]


def _strategy_names() -> list[str]:
    from foretell.plan.members import strategies

    return list(strategies())


def _policy_names() -> list[str]:
    from foretell.plan.members import policies

    return list(policies())


def _schedule_names() -> list[str]:
    from foretell.plan.schedule import schedules

    return list(schedules())


def _trainer_names() -> list[str]:
    from foretell.plan import trainer

    return list(trainer.names())


def _model_names() -> list[str]:
    from foretell.model import zoo

    return list(zoo.names())


# hardware


def _device(name: str) -> Page:
    from foretell.hardware import members
    from foretell.hardware.cluster import PRECISIONS

    found = members.device(name.lower() if not name.endswith(".toml") else name)
    where = found.sources.get
    lines = [
        Figure("architecture", found.architecture),
        Figure("memory", show(found.memory_bytes, "memory"), where("memory", "")),
        Figure("bandwidth", show(found.memory_bandwidth, "bandwidth"), where("memory_bandwidth", "")),
        Figure("cache", show_bytes(found.cache_bytes), where("cache", "")),
        Figure("multiprocessors", f"{found.multiprocessors}", where("multiprocessors", "")),
        Figure("clock", show(found.clock_hz, "frequency"), where("clock", "")),
        Figure("power", show(found.power_watts, "power"), where("power", "")),
        Figure("launch", show(found.launch_seconds, "time"), where("launch", "")),
    ]
    for title, key, rates in (("matrix", "peak", found.peak), ("vector", "vector", found.vector)):
        for precision in sorted(rates, key=PRECISIONS.index):
            value = show(rates[precision], "rate")
            lines.append(Figure(f"{title} {precision}", value, where(f"{key}.{precision}", "")))
    node = found.node
    lines.append(Figure("usual node", f"{node.size} over {node.link}", where("node.size", "")))
    lines.append(Figure("network", f"{node.ports} x {node.network} a node", where("node.ports", "")))
    if node.domain > node.size:
        lines.append(Figure("reach", f"{node.link} joins {node.domain} devices", where("node.domain", "")))
    lines.append(Figure("host link", found.host_link))
    other = sorted(alias for alias, meant in members.aliases().items() if meant == found.name)
    if other:
        lines.append(Figure("also called", ", ".join(other)))
    return Page("device", found.name, found.title, tuple(lines), (), (), found)


def _link(name: str) -> Page:
    from foretell.hardware import members

    found = members.link(name.lower() if not name.endswith(".toml") else name)
    where = found.sources.get
    whose = "of a port" if found.per_port else "of a device"
    lines = [
        Figure("kind", found.kind),
        Figure("bandwidth", f"{show(found.bandwidth, 'bandwidth')} {whose}, one way", where("bandwidth", "")),
        Figure("latency", show(found.latency_seconds, "time"), where("latency", "")),
    ]
    if found.hop_seconds:
        lines.append(Figure("fabric hop", show(found.hop_seconds, "time"), where("hop", "")))
    if found.ceiling < found.bandwidth:
        value = f"{show(found.ceiling, 'bandwidth')} at most, by software"
        lines.append(Figure("ceiling", value, where("ceiling", "")))
    for key, share in found.efficiency.items():
        kind, _, limit = key.partition("@")
        among = f" among at most {limit} ranks" if limit else ""
        value = f"{share:.0%} of the bandwidth reached{among}"
        lines.append(Figure(kind.replace("_", "-"), value, where(f"efficiency.{key}", "")))
    lines.append(Figure("switched", "every pair at full rate" if found.switched else "by the wires that join a pair"))
    if found.multicast:
        lines.append(Figure("multicast", "the switch reduces and multicasts (NVLS)"))
    return Page("link", found.name, found.title, tuple(lines), (), (), found)


def _cluster(text: str) -> Page:
    from foretell.hardware import catalog

    named = catalog.named(text)
    found = named.cluster
    lines = [
        Figure("ranks", f"{found.ranks:,}: {found.nodes:,} node{'s' * (found.nodes > 1)} of {found.ranks_per_node}"),
        Figure("devices", " + ".join(f"{group.ranks:,} x {group.device.name}" for group in found.groups)),
        *_levels(found),
    ]
    lines += [Figure("note", note) for note in named.notes]
    tail = (f"About a part: foretell describe {found.groups[0].device.name}, {found.levels[-1].link.name}",)
    return Page("cluster", found.text, found.title, tuple(lines), tail, (), found)


def _levels(found: Cluster) -> Iterator[Figure]:
    below = "devices"
    for at, level in enumerate(found.levels):
        ports = f", {level.ports} ports a node" if level.link.per_port else ""
        narrow = f", 1:{level.oversubscription:g} over-subscribed" if level.oversubscription > 1 else ""
        value = f"{level.size:,} {below} over {level.link.name}{ports}{narrow}"
        rate = show(found.rank_bandwidth(level), "bandwidth")
        where = [found.sources.get(f"levels[{at}].{key}", "") for key in ("size", "oversubscription", "ports")]
        yield Figure(level.name, f"{value}: {rate} a rank", where[0], where[1] or where[2])
        below = f"{level.name}s"


# the plan


def _strategy(text: str) -> Page:
    from foretell.plan.members import strategies
    from foretell.plan.text import parse

    word = text.lower()
    if word not in strategies() and re.search(r"[0-9]", word):
        word = parse(text).axes[0].word
    if word not in strategies():
        raise _no_member("strategy", text)
    kind = strategies()[word]
    axis = parse(kind.example).axes[0]
    lines = [Figure("written", f"{kind.word}N, such as {kind.example}"), *_options(kind)]
    if kind.grid:
        lines.append(Figure("grid", f"the ranks may be a grid: {kind.word}2x2"))
    if kind.parts:
        lines.append(Figure("for a part", f"{kind.word}4[fc*] is for these layers only"))
    for mesh in axis.axes():
        lines += _mesh(mesh)
    data = _choice(kind)
    return Page("strategy", kind.word, kind.summary, tuple(lines), _explained(kind), kind.references, data)


def _mesh(mesh: MeshAxis) -> Iterator[Figure]:
    """What one axis of the example divides, and how weights lie along it."""
    splitting = mesh.splitting
    parts = [f"the dim {splitting.dim} of the inputs"] if splitting.dim else []
    if splitting.weighted:
        parts.append(f"the {' or '.join(splitting.weighted)} loops of layers with weights")
    if splitting.between:
        parts.append(f"the {splitting.between} between such layers")
    if splitting.attention:
        parts.append(
            {"rotate": "attention, keys and values rotating", "heads": "heads inside attention"}[splitting.attention]
        )
    if splitting.experts == "divide":
        parts.append("experts")
    yield Figure(f"{mesh.name} splits", ", ".join(parts) or "the layers, into stages")
    stored = [name for name in ("states", "gradients", "weights") if getattr(mesh.storage, name)]
    yield Figure(f"{mesh.name} stores", f"{', '.join(stored)} in shares" if stored else "everything whole on each rank")
    exchange = mesh.exchange
    if exchange.own:
        when = f"every {exchange.period} steps" if exchange.period > 1 else "each step"
        yield Figure("versions", f"each rank has its own, brought together {when}")
    if exchange.waits != "all":
        yield Figure("waits for", f"{exchange.waits}{f', {exchange.staleness} steps' if exchange.staleness else ''}")


def _policy(text: str) -> Page:
    from foretell.plan.members import policies
    from foretell.plan.text import parse

    word = text.lower().removeprefix("+").partition(":")[0]
    said: tuple[Policy, ...] = ()
    if word not in policies():
        said = parse(f"dp1 {text if text.startswith('+') else f'+{text}'}").policies
        if not said:
            raise _no_member("policy", text)
        word = said[0].word
    kind = policies()[word]
    lines = [Figure("written", f"such as {kind.example}"), *_options(kind), *_meant(said)]
    if kind.inside:
        inside = ", ".join(f"{axis}N:..." for axis in kind.inside)
        lines.append(Figure("also in", inside))
    data = _choice(kind)
    return Page("policy", kind.word, kind.summary, tuple(lines), _explained(kind), kind.references, data)


def _meant(said: tuple[Policy, ...]) -> Iterator[Figure]:
    """What the table of a policy says about the word that was asked for, if it has one."""
    import msgspec

    for form in (getattr(policy, "format", None) for policy in said):
        if form is not None:
            values = msgspec.structs.asdict(form)
            source = values.pop("source")
            yield from (Figure(name.replace("_", " "), _value(value), source) for name, value in values.items())


def _no_member(kind: str, text: str) -> UnknownName:
    known = NAMES[kind]()
    return UnknownName(f"no {kind} is called {text!r}", fix=", ".join(near(text, known) or known))


def _options(kind: type[Strategy] | type[Policy]) -> Iterator[Figure]:
    for option in kind.syntax:
        yield Figure(option.field.replace("_", " "), ", ".join(option.forms))


def _choice(kind: type[Strategy] | type[Policy]) -> dict[str, Any]:
    return {
        "word": kind.word,
        "summary": kind.summary,
        "example": kind.example,
        "options": {option.field: tuple(option.forms) for option in kind.syntax},
        "references": kind.references,
    }


def _explained(kind: type) -> tuple[str, ...]:
    """What its file says about it, and its class where that is more than a line."""
    said = [sys.modules[kind.__module__].__doc__ or "", kind.__doc__ or ""]
    texts = [inspect.cleandoc(text) for at, text in enumerate(said) if at == 0 or "\n" in text.strip()]
    return tuple(_paragraph(part) for text in texts for part in text.split("\n\n") if part)


ROW = re.compile(r"(\S+) {2,}(\S.*)")
"""A line of a list of words with what each means."""


def _paragraph(text: str) -> str:
    """A paragraph folded; a list of words stays one."""
    lines = text.replace("`", "").splitlines()
    if not ROW.match(lines[0]):
        return textwrap.fill(" ".join(" ".join(lines).split()), WIDTH, break_on_hyphens=False)
    rows: list[list[str]] = []
    for line in lines:
        row = ROW.match(line)
        if row:
            rows.append([row[1], row[2]])
        else:
            rows[-1][1] += f" {line.strip()}"
    return "\n".join(_lines([Figure(*row) for row in rows], []))


def _schedule(name: str) -> Page:
    from foretell.plan.schedule import find

    found = find(name.lower())
    ranks, count, drawn = _drawn(found)
    chunks = found.least_chunks
    most = "" if found.most_chunks == chunks else ", or more"
    bubble = found.bubble(ranks, count, chunks, 1.0, 1.0, 1.0)
    held = [found.in_flight(rank, ranks, count, chunks) for rank in range(ranks)]
    lines = [
        Figure("written", f"pp{ranks}:{found.name} +m{count}"),
        Figure("stages", f"{chunks} on each rank{most}"),
        Figure("backward", "in two parts, I (inputs) and W (weights)" if found.splits_backward else "whole"),
        Figure("flushes", "yes: all see the same weights" if found.flushes else "no: weights are some updates old"),
        Figure("bubble", f"{bubble:g} with F = I = W = 1 at pp{ranks} +m{count}; a rank works {3 * count}"),
        Figure("in flight", f"{', '.join(f'{one:g}' for one in held)} micro-batches at ranks 0 to {ranks - 1}"),
    ]
    if found.copies > 1:
        lines.append(Figure("copies", f"{found.copies} of the weights"))
    data = {
        "name": found.name,
        "summary": found.summary,
        "least_chunks": chunks,
        "most_chunks": found.most_chunks,
        "splits_backward": found.splits_backward,
        "flushes": found.flushes,
        "copies": found.copies,
        "example": {"ranks": ranks, "microbatches": count, "bubble": bubble, "in_flight": held, "drawn": drawn},
        "references": found.references,
    }
    return Page("schedule", found.name, found.summary, tuple(lines), (drawn,), found.references, data)


def _drawn(found: Schedule) -> tuple[int, int, str]:
    """A timeline that the schedule accepts and eighty columns hold; if none is so short, the smallest in pieces."""
    from foretell.plan.schedule import draw

    accepted = [size for size in SMALL if not any(found.refusals(*size, found.least_chunks))]
    timelines = {size: draw(found.name, *size) for size in accepted}
    short = (size for size, text in timelines.items() if max(map(len, text.splitlines())) <= WIDTH)
    ranks, count = next(short, accepted[-1])
    return ranks, count, _pieces(timelines[ranks, count])


HEAD = len("rank 0  ")
PIECE = 72
"""Columns of a piece of a timeline; the slots of a drawn one are three or four wide."""


def _pieces(drawn: str) -> str:
    """A timeline cut into pieces that stand below each other."""
    rows = [(line[:HEAD], line[HEAD:]) for line in drawn.splitlines()]
    longest = max(len(row) for _, row in rows)
    starts = range(0, longest, PIECE)
    return "\n\n".join("\n".join(f"{head}{row[at : at + PIECE]}".rstrip() for head, row in rows) for at in starts)


def _trainer(name: str) -> Page:
    from foretell.plan.trainer import CONSTANTS, trainer
    from foretell.plan.trainer_table import show as shown

    found = trainer(name.lower() if not name.endswith(".toml") else name)
    own = [key for key in CONSTANTS if not found.source(key).startswith("carried over from ")]
    lines = [Figure(key, shown(found, key), found.source(key)) for key in own]
    carried = len(CONSTANTS) - len(own)
    texts: tuple[str, ...] = ()
    if found.based_on:
        said = f"Based on {found.based_on}: {carried} more constants are carried over (all of them: --json)."
        texts = (_folded(said, ""),)
    constants = {key: {"value": found.constant(key), "source": found.source(key)} for key in CONSTANTS}
    data = {"name": found.name, "based_on": found.based_on, "constants": constants}
    return Page("trainer", found.name, found.summary, tuple(lines), texts, (), data)


# models


def _model(text: str) -> Page:
    from foretell.model import source, zoo
    from foretell.model.totals import totals
    from foretell.plan.facts import facts

    graph = source.load(text)
    needs, found = totals(graph), facts(graph)
    lines = [
        Figure("parameters", f"{show_count(needs.parameters)} ({needs.parameters:,})"),
        Figure("forward", f"{show_flops(needs.forward.matrix)} for a batch of {graph.batch}"),
        Figure("layers", f"{found.layers}"),
    ]
    counts = (("heads", found.heads), ("sequence", found.sequence), ("experts", found.experts))
    lines += [Figure(name, f"{count:,}") for name, count in counts if count]
    data: dict[str, Any] = {"parameters": needs.parameters, "layers": found.layers, "source": graph.source}
    references: tuple[str, ...] = ()
    title = f"read from {graph.source}"
    texts: tuple[str, ...] = (f"All about it: foretell analyze {text}",)
    if text.partition(":")[0] in zoo.names():
        import msgspec

        _, fields = zoo.parse(text)
        family = type(fields).__module__.rpartition(".")[2]
        values = msgspec.to_builtins(fields)
        lines += [Figure(f"{name} =", _value(value)) for name, value in values.items()]
        sizes = [name for name, other in zoo.names().items() if type(other) is type(fields)]
        title = f"of the family {family}"
        texts = (_folded(f"sizes: {', '.join(sizes)}", "  "), *texts)
        data |= {"family": family, "fields": values, "sizes": sizes}
        references = type(fields).references
    data["references"] = references
    return Page("model", text, title, tuple(lines), texts, references, data)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "/".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return str(value)


PAGES: dict[str, Callable[[str], Page]] = {
    "device": _device,
    "link": _link,
    "cluster": _cluster,
    "strategy": _strategy,
    "policy": _policy,
    "schedule": _schedule,
    "trainer": _trainer,
    "model": _model,
}

NAMES: dict[str, Callable[[], list[str]]] = {
    "device": _device_names,
    "link": _link_names,
    "cluster": _cluster_names,
    "strategy": _strategy_names,
    "policy": _policy_names,
    "schedule": _schedule_names,
    "trainer": _trainer_names,
    "model": _model_names,
}
