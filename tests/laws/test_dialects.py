"""Every dialect: what is written is recognised, and read back as the same plan; what cannot be said is told."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.dialects import Launch, Recipe, dialect, names, open_configuration, put_together, taken_apart, write
from foretell.dialects._dialect import changed
from foretell.dialects._model import model_of, shape_of
from foretell.dialects._recipe import HINTS
from foretell.dialects.launchers import launch
from foretell.dialects.launchers import names as launchers
from foretell.errors import BadInput, ForetellError
from foretell.model.graph import Graph
from foretell.model.source import load
from foretell.plan.fitness import fits
from foretell.plan.job import make_job
from foretell.plan.plan import Plan
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from law_examples import examples, reached

MODEL = "llama3-8b"
SAID = 5
"""Random legal plans that each dialect must say and read again."""

TRIES = 3000


@functools.cache
def graph(model: str, batch: int) -> Graph:
    return load(model, batch, 2048, "bf16")


NUMBERED = ("every2", "first3", "nth2")


def drawn(draw: random.Random) -> str:
    """Any text of a plan for a decoder."""
    axes = []
    if draw.random() < 0.5:
        schedule = draw.choice(
            ["gpipe", "1f1b", "1f1b", "interleaved,v2", "interleaved,v4", "zb-h1", "zb-v", "dualpipe-v"]
        )
        split = ",split=7/9/9/7" if draw.random() < 0.15 else ""
        axes.append(f"pp{4 if split else draw.choice([2, 4])}:{'1f1b' if split else schedule}{split}")
    storage = draw.choice(["", ":zero1", ":zero1", ":zero2", ":zero3", ":zero3", ":zero3,shard2", ":zero1,shard4"])
    axes.append(f"dp{draw.choice([1, 2, 4, 8])}{storage}")
    if draw.random() < 0.3:
        axes.append(f"cp2:{draw.choice(['ring', 'alltoall'])}")
    if draw.random() < 0.5:
        axes.append(f"tp{draw.choice([2, 4, 8])}{draw.choice(['', ':sp', ':sp'])}")
    if draw.random() < 0.1:
        draw.shuffle(axes)
    said = [
        f"+m{draw.choice([1, 2, 8, 16])}",
        f"+{draw.choice(['bf16', 'bf16', 'bf16', 'bf16:pure', 'fp32', 'fp16', 'fp8', 'mxfp8', 'amp_bf16'])}",
    ]
    numbered = NUMBERED[len(axes) % len(NUMBERED)]
    said += draw.choice(
        [[], [], ["+recompute:block"], ["+recompute:attention"], ["+recompute:full"], [f"+recompute:{numbered}"]]
    )
    said += draw.choice(
        [[], [], [], ["+offload:optimizer"], ["+offload:optimizer,weights"], ["+lora16"], ["+compress:int8"]]
    )
    said += draw.choice([[], [], ["+overlap"], ["+no-overlap"], ["+bucket:64MiB"], ["+compiled"]])
    return " ".join(axes + said)


def legal(name: str) -> Iterator[tuple[Plan, Recipe]]:
    """Random plans that the dialect's trainer runs, with their figures."""
    draw = random.Random(name)
    for _ in range(TRIES):
        plan = parse(drawn(draw))
        draws = plan.ranks * plan.microbatches * draw.choice([1, 2])
        ranks = taken_apart(plan, batch=draws)
        batch = ranks.data * ranks.microbatches * draw.choice([1, 2])
        run = trainer(dialect(name).trainer(ranks))
        job = make_job(batch, trainer=run.name, sequence=2048)
        setting = Setting(graph(MODEL, batch // plan.microbatches), job, plan, run)
        if fits(setting):
            yield (
                setting.plan,
                taken_apart(
                    setting.plan,
                    batch=batch,
                    model=MODEL,
                    shape=shape_of(MODEL),
                    sequence=2048,
                    optimizer=job.optimizer,
                ),
            )


@pytest.mark.parametrize("name", names())
def test_plans_come_back(name: str, tmp_path: Path) -> None:
    said, refused = 0, 0
    for plan, recipe in legal(name):
        try:
            written = write(dialect(name), recipe, ["a plan"])
        except BadInput as problem:
            refused += 1
            assert "cannot express this plan" in problem.what
            continue
        said += 1
        file = tmp_path / dialect(name).file
        file.write_text(written.text)
        found = open_configuration(str(file))
        assert found.dialect.name == name
        again = found.recipe(Launch(recipe.ranks, recipe.batch))
        lost = set(changed(recipe, again))
        assert lost <= {one.figure for one in written.unsaid} | {"shape", "micro_batch"}, (str(plan), lost)
        if not lost - set(HINTS):
            assert put_together(again).axes == put_together(recipe).axes
        if said == SAID:
            break
    assert said == SAID, f"{said} of {said + refused} legal plans can be said"


@pytest.mark.parametrize("name", names())
def test_no_key_says_two_things(name: str) -> None:
    """A figure of a dialect is written by one entry of its table, so that the last writer never wins by chance."""
    figures = [one.figure for one in dialect(name).table if hasattr(one, "figure")]
    twice = {figure for figure in figures if figures.count(figure) > 1}
    assert twice <= {"sequence"}  # nanotron has the length of samples and of positions


def test_plans_go_apart_and_together() -> None:
    for text in (
        "pp4:interleaved,v2 dp2:zero1 tp8:sp +m16 +recompute:every2 +bf16",
        "dp8:zero1 tp8:sp +m2 +recompute:first21 +bf16",
        "dp8:zero3 +m2 +recompute:nth2 +bf16",
        "dp2:zero3,shard8 cp2:alltoall +offload:optimizer +fp16",
        "dp4 pp2:1f1b tp2 +m4 +bf16 +no-overlap +bucket:25MB",
        "pp3:1f1b,split=10/12/10 dp2 +m3 +fp32 +compiled",
        "dp8:zero1,ep4,etp1 tp2:sp +bf16",
        "dp1",
    ):
        plan = parse(text)
        recipe = taken_apart(plan, batch=plan.ranks * plan.microbatches)
        assert put_together(recipe) == plan or str(plan) == "dp1"
        assert recipe.ranks == plan.ranks
        assert not recipe.others


def test_what_no_dialect_has_a_word_for_is_refused_everywhere() -> None:
    for text in ("dp2 +compress:int8", "dp2 spatial2", "local2:tau10"):
        plan = parse(text)
        recipe = taken_apart(plan, batch=plan.ranks)
        for name in names():
            with pytest.raises(BadInput, match="cannot express"):
                write(dialect(name), recipe)


TUNING = ("axolotl", "llama-factory", "torchtune", "trl")
"""Dialects that have words for adapters."""


@pytest.mark.parametrize("name", names())
def test_adapters_come_back_or_are_refused(name: str, tmp_path: Path) -> None:
    precision = "bf16:pure" if name == "torchtune" else "bf16"
    wide = "" if name == "torchtune" else " +fp32-adapters"
    data = "dp4:zero3" if name == "torchtune" else "dp4"
    forms = ("", " +dora") if name == "torchtune" else ("", " +dora", " +rslora", " +dora,rslora", " +int8")
    where = (" +nf4-dq", " +adapt:query,value", " +adapt:attention", " +adapt:feed_forward")
    for adapters in (*forms, *where):
        plan = parse(f"{data} +m2 +{precision} +recompute:block +lora8{wide}{adapters}")
        recipe = taken_apart(plan, batch=16, model=MODEL, sequence=2048, optimizer="adamw8bit")
        if name not in TUNING:
            with pytest.raises(BadInput, match="cannot express"):
                write(dialect(name), recipe)
            continue
        written = write(dialect(name), recipe)
        assert not written.unsaid
        file = tmp_path / dialect(name).file
        file.write_text(written.text)
        found = open_configuration(str(file))
        assert found.dialect.name == name
        assert not [note for note in found.notes if note.startswith("not read")]
        again = found.recipe(Launch(4, 0))
        assert put_together(again) == plan
        assert (again.model, again.sequence, again.batch, again.optimizer) == (MODEL, 2048, 16, "adamw8bit")


@pytest.mark.parametrize(
    "model",
    ["llama3-8b", "llama2-70b", "qwen3-0.6b", "gpt2", "qwen2.5-7b", "mixtral-8x7b", "deepseek-v3", "resnet50"],
)
def test_models_have_their_sizes_or_none(model: str) -> None:
    shape = shape_of(model)
    if model in ("resnet50", "deepseek-v3"):  # latent attention has sizes of its own
        assert shape is None
        return
    assert shape is not None
    assert shape_of(model_of(shape)) == shape


@pytest.mark.parametrize("name", launchers())
def test_launchers_start_all_ranks(name: str) -> None:
    recipe = taken_apart(parse("dp16:zero3 +bf16"), batch=16, per_node=8)
    text = launch(name, recipe, ["train.py", "--config run.yaml"])
    assert "train.py" in text
    words = {
        "ray": ["num_workers=16,"],
        "sbatch": ["--nodes=2", "--gpus-per-node=8", "--nproc-per-node=8"],
        "torchrun": ["--nnodes=2", "--nproc-per-node=8"],
    }
    assert set(words[name]) <= set(text.replace("(", " ").split())


@functools.cache
def samples() -> dict[str, str]:
    """A file of each dialect."""
    recipe = taken_apart(parse("dp4 +bf16"), batch=8, model=MODEL, shape=shape_of(MODEL), sequence=2048)
    amp, pure = "dp4 +amp_bf16", "dp4:zero3 +bf16:pure"
    said = {"accelerate": amp, "lightning": amp, "llama-factory": amp, "trl": amp}  # automatic, without shares
    said |= {"axolotl": pure, "torchtune": pure}
    others = {
        name: taken_apart(parse(text), batch=8, model=MODEL, shape=shape_of(MODEL), sequence=2048)
        for name, text in said.items()
    }
    return {name: write(dialect(name), others.get(name, recipe)).text for name in names()}


@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.reaches(answered=5, refused=5)
@given(st.sampled_from(names()), st.data())
def test_files_that_somebody_broke(tmp_path: Path, name: str, data: st.DataObject) -> None:
    """Whatever a file has in it: an answer, or a message that says what is wrong."""
    text = samples()[name]
    at = data.draw(st.integers(0, len(text)))
    gone = data.draw(st.integers(0, 12))
    put = data.draw(
        st.one_of(st.text(max_size=6), st.sampled_from(["-1", "null", "[]", "{}", "1e99", "${X", "auto", "0"]))
    )
    file = tmp_path / dialect(name).file
    file.write_bytes((text[:at] + put + text[at + gone :]).encode("utf-8", "surrogatepass"))
    try:
        recipe = open_configuration(str(file)).recipe(Launch(8, 0))
        put_together(recipe)
        reached("answered")
    except ForetellError as problem:
        assert problem.what
        reached("refused")
