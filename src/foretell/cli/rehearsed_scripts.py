"""foretell rehearse --script: an unmodified training script as one rank of a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from foretell.cli.rehearse_pages import held_table, other_device
from foretell.cli.run_pages import show_seconds
from foretell.cli.table import folded_lines, table
from foretell.errors import BadInput
from foretell.units import show_bytes

if TYPE_CHECKING:
    from foretell.runtime.script_report import RehearsedScript, ScriptReport

EXAMPLE = "foretell rehearse --script --on 64xh100 -- train.py --lr 1e-4"

ITS_OWN = ("plan", "batch", "batch_per_rank", "seq", "trainer", "optimizer", "from_config", "calibration", "depths")
"""What a script says itself, or nobody of it."""

ALONE = "the same script alone, then again with --script"


def rehearse_script(options: dict[str, Any], arguments: tuple[str, ...]) -> None:
    """Run a script here, and tell what was seen of it."""
    _refuse_what_it_says_itself()
    asked = _asked(options, arguments)
    report = _seen(asked, options)
    if report.failure is not None:
        raise BadInput(report.failure.what, where=asked.script, fix=ALONE)
    if not report.steps:
        what = f"no optimizer of the script stepped more than {asked.dropped} times"
        raise BadInput(what, where=asked.script, fix=f"more steps in the script: at least {asked.dropped + 1}")
    click.echo(_told(asked, report, _record(asked, report, options["records"]), options["as_json"]))


def _refuse_what_it_says_itself() -> None:
    """Options that would be read past are refused: whoever gives them thinks that they do something."""
    context = click.get_current_context()
    given = [name for name in ITS_OWN if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        said = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        what = f"{said} with --script: a script has a plan, a model and a batch of its own"
        raise BadInput(what, where=said, fix=f"without {said}; a script is given its own options after --")


def _asked(options: dict[str, Any], arguments: tuple[str, ...]) -> RehearsedScript:
    from foretell.hardware import catalog
    from foretell.runtime.script_report import RehearsedScript

    script = options["model"]
    if not script or not Path(script).is_file():
        raise BadInput(f"{script or 'nothing'} is no script", where="MODEL", fix=EXAMPLE)
    if not options["on"]:
        raise BadInput("no cluster is given", where="--on", fix=EXAMPLE)
    cluster = catalog.cluster(options["on"])
    ranks, rank = options["world"] or cluster.ranks, (options["ranks"] or (0,))[0]
    if not 0 <= rank < ranks or not 1 <= ranks <= cluster.ranks:
        what = f"rank {rank} of {ranks} on {cluster.text}, which has {cluster.ranks}"
        raise BadInput(what, where="--rank, --ranks", fix=f"--ranks {cluster.ranks} --rank 0")
    return RehearsedScript(
        script=script,
        arguments=arguments,
        rank=rank,
        ranks=ranks,
        cluster=cluster.text,
        here=min(ranks, cluster.ranks_per_node),
        priced=options["messages"] == "priced",
        steps=options["steps"],
    )


def _seen(asked: RehearsedScript, options: dict[str, Any]) -> ScriptReport:
    """What its process tells; nothing of it is left, however it ends."""
    import msgspec

    from foretell.processes import ChildProcess, ProcessEnded, python
    from foretell.runtime.script_report import ScriptReport

    seconds, threads = options["timeout"], options["threads"]
    variables = {"OMP_NUM_THREADS": f"{threads or 1}"} if threads or "OMP_NUM_THREADS" not in os.environ else {}
    if options["device"] == "cpu":
        variables["CUDA_VISIBLE_DEVICES"] = ""
    child = ChildProcess(python("-m", "foretell.runtime.rehearsed_script"), variables)  # one, as torchrun has it
    try:
        line = child.ask(msgspec.json.encode(asked) + b"\n", seconds)
    except TimeoutError:
        what = f"{asked.script} did not do {asked.dropped + asked.steps} steps within {seconds:g} seconds"
        raise BadInput(what, where=asked.script, fix="fewer --steps, or more --timeout") from None
    except ProcessEnded as problem:
        memory = "; the kernel does so when memory runs out" if problem.code == -9 else ""
        what, fix = f"the script's process ended with {problem.code}{memory}", "a smaller batch or model in the script"
        raise BadInput(what, where=asked.script, fix=fix if memory else ALONE) from None
    finally:
        child.kill()
        child.end()
    return msgspec.json.decode(line, type=ScriptReport)


def _record(asked: RehearsedScript, report: ScriptReport, folder: str) -> dict[str, Any]:
    """The answer, which is kept: with a plan that was recognised it is an anchor."""
    import msgspec

    from foretell.records.home import home
    from foretell.records.record import record
    from foretell.records.store import write
    from foretell.runtime.recording import machine
    from foretell.runtime.script_report import recognised

    found: dict[str, Any] = {
        "script": asked.script,
        "arguments": asked.arguments,
        "rank": asked.rank,
        "ranks": asked.ranks,
        "recognised": recognised(report, asked.ranks),
        "step_seconds": median(report.steps),
        **msgspec.to_builtins(report),
    }
    found.pop("failure")
    rehearsal = {"cluster": asked.cluster, "priced": asked.priced}
    content = {**found, "machine": msgspec.to_builtins(machine(report.device)), "rehearsal": rehearsal}
    made = record("answer", content, versions=report.versions, cluster=asked.cluster, plan=found["recognised"])
    return {**found, "cluster": asked.cluster, "record": str(write(Path(folder) if folder else home(), made))}


def _told(asked: RehearsedScript, report: ScriptReport, found: dict[str, Any], as_json: bool) -> str:
    import msgspec

    from foretell.hardware import catalog
    from foretell.runtime.recording import machine
    from foretell.runtime.rehearsal import UNSEEN
    from foretell.runtime.script_report import described

    if as_json:
        return msgspec.json.encode({**found, "unseen": UNSEEN}).decode()
    reserved = f", {show_bytes(report.reserved)} reserved" if report.reserved else ""
    facts = [
        ("script", " ".join((asked.script, *asked.arguments))),
        ("rehearsed", f"rank {asked.rank} of {asked.ranks:,}, on {machine(report.device).title}"),
        ("messages", f"as they are priced on {asked.cluster}" if asked.priced else "take no time"),
        ("step", f"{show_seconds(found['step_seconds'])} over {len(report.steps)} steps of its optimizer"),
        ("memory", f"{show_bytes(report.allocated)} of tensors{reserved}"),
        ("looks like", found["recognised"] or "no plan that is known here"),
        ("record", found["record"]),
    ]
    head = "\n".join(f"{name:<14}{text}" for name, text in facts)
    rows = [[kind, among, f"{count}", show_bytes(size)] for kind, among, count, size in described(report.collectives)]
    traffic = table(["a step's", "among", "count", "bytes in all"], rows, left=(0, 1)) if rows else "collectives: none"
    own, theirs = machine(report.device).device, catalog.cluster(asked.cluster).device.name
    other = f"{other_device(own, theirs)}. " if own != theirs else ""
    note = f"{other}Values of others are this rank's own. Not seen in a rehearsal: {'; '.join(UNSEEN)}."
    held = [held_table(report.resting, report.alive)] if report.alive else []
    return "\n\n".join([head, traffic, *held, folded_lines(note)])
