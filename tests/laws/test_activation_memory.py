"""Laws of the allocation trace: what it says is alive, and how much, is what a second player by names finds."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretell.hardware.catalog import cluster
from foretell.plan.fitness import fits
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.activation_memory import StageTrace, WeightBuffers
from foretell.program.allocation_trace import PLAYED
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram, Stage
from foretell.program.lower import lower
from foretell.program.program import Program
from foretell.program.stage_runs import StageRuns
from program_cases import load
from reference_player import Layer, Played, played, stage_layers

few = settings(max_examples=25)

ON = cluster("16xh100")
SIZES = "hidden=64,heads=8,vocab=256,seq=32"
MODELS = (
    f"gpt:layers=12,{SIZES}",
    f"llama:layers=9,{SIZES},kv_heads=4,head_dim=8,ffn=96",
    f"mixture:layers=4,{SIZES},kv_heads=8,head_dim=8,ffn=32,experts=8,top_k=2",
    f"t5:layers=2,{SIZES}",
    "resnet18",
    "unet",
)


def of(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


class Case(NamedTuple):
    """A plan with its program."""

    setting: Setting
    outline: Program
    program: ExpandedProgram

    def __repr__(self) -> str:
        return f"{self.program.model} {self.program.plan} {self.program.trainer}"

    def trace(self, at: int) -> StageTrace:
        return self.outline.rank_program.trace(self.outline.partition.runs(at), pipelined=self.pipelined)

    @property
    def pipelined(self) -> bool:
        return self.outline.ranks > 1

    def weights(self, at: int) -> WeightBuffers:
        own = self.outline.own(at)
        care = self.outline.weight_state.care(own, self.outline.holders(at, own))
        return WeightBuffers(care.gathered_for(self.outline.partition.runs(at)), self.outline.weight_state.reshards)

    def played(self, stage: Stage) -> Played:
        return played(self.outline.graph, stage_layers(stage), pipelined=self.pipelined)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any plan of up to sixteen ranks that fits, for any of the models."""
    words = (
        draw(of("", "", "pp2:1f1b", "pp4:gpipe", "pp2:interleaved,v2", "pp2:zb-v", "pp2:dualpipe")),
        draw(of("", "dp2", "dp4:zero1", "dp2:zero2", "dp4:zero3", "dp2:zero3,shard2")),
        draw(of("", "tp2:sp", "tp2")),
        "+m4",
        draw(of("", "", "+recompute:block", "+recompute:attention")),
        draw(of("", "+offload:optimizer", "+offload:weights", "+lora4")),
    )
    plan = parse(" ".join(word for word in words if word))
    trained_by = draw(of("pytorch", "fsdp", "torchtitan", "megatron-core", "deepspeed"))
    setting = Setting(load(draw(of(*MODELS)), 8), Job(batch=32), plan, trainer(trained_by))
    assume(fits(setting, ON))
    return Case(setting, lower(setting), expand(lower(setting)))


@few
@given(cases())
def test_peaks_are_those_of_a_player_by_names(case: Case) -> None:
    """Beside what layers allocate, a stage has the samples that it is given and weights that belong to no layer."""
    cutting = case.outline.partition
    for at, stage in enumerate(case.program.stages):
        found = case.played(stage)
        root = case.outline.weight_state.care(
            case.outline.own(at), case.outline.holders(at, case.outline.own(at))
        ).root_bytes
        inputs = cutting.signature_runs[cutting.stage_signatures[at]].inputs
        given = sum(case.outline.layout.held_bytes(*home) for home in inputs)
        assert stage.memory.kept == pytest.approx(sum(found.kept.values()) + given, rel=1e-12)
        assert stage.memory.forward_peak == pytest.approx(sum(found.forward.values()) + given + root, rel=1e-12)
        assert stage.memory.backward_peak == pytest.approx(sum(found.backward.values()) + given + root, rel=1e-12)


@few
@given(cases())
def test_the_same_storages_are_alive(case: Case) -> None:
    """By name: between the passes, and when each is fullest. The program has an event for weights of each layer."""
    for at, stage in enumerate(case.program.stages):
        trace, weights, found = case.trace(at), case.weights(at), case.played(stage)
        assert _activations(trace.kept()) == _activations(found.kept)
        for forward, wanted in ((True, found.forward), (False, found.backward)):
            alive = trace.at_peak(forward, weights)
            assert _activations(alive.storages) == _activations(wanted)
            sizes = [one.own for one in weights.gathered]
            gathered = math.fsum(a * b for a, b in zip(sizes, alive.gathered_layers, strict=False))
            assert gathered + alive.messages == pytest.approx(
                sum(wanted.values()) - sum(_activations(wanted).values()), rel=1e-12
            )


def _activations(alive: dict[tuple[int, int, int, str], float]) -> dict[tuple[int, int, int, str], float]:
    return {name: size for name, size in alive.items() if size and name[1] >= 0}


@few
@given(cases())
def test_what_crosses_between_stages_is_found(case: Case) -> None:
    for at, stage in enumerate(case.program.stages):
        trace, found = case.trace(at), case.played(stage)
        assert trace.bytes(trace.trace.missing) == found.missing
        assert trace.bytes(trace.trace.left) == found.left
        assert trace.bytes(trace.trace.twice) == found.twice


@few
@given(cases(), st.sampled_from((2.0, 4.0)))
def test_new_gradients_come_one_by_one(case: Case, gradient: float) -> None:
    """The peak with gradients that the backward pass makes is that of a player who gets each where it is made."""
    outline = case.outline
    for at in range(outline.partition.count):
        layers = [
            Layer(
                run,
                outline.rank_program.bodies.forward(*run[:3], "").actions,
                outline.rank_program.bodies.making(*run[:3]),
            )
            for run in outline.partition.runs(at)
        ]
        found = played(outline.graph, layers, pipelined=case.pipelined, gradient=gradient)
        own = outline.partition.signature_runs[outline.partition.stage_signatures[at]]
        weights = WeightBuffers(gradient=gradient)
        peak = outline.rank_program.peaks(own, weights, case.pipelined).making_peak
        assert peak == pytest.approx(sum(found.backward.values()), rel=1e-12)
        assert sum(case.trace(at).at_peak(False, weights).storages.values()) == pytest.approx(peak, rel=1e-12)


@few
@given(cases())
def test_long_runs_need_not_be_played_whole(case: Case) -> None:
    """Stages whose longest run has more repetitions than are played hold what the whole trace says."""
    outline, weights = case.outline, WeightBuffers(gradient=4.0)
    for at in range(outline.partition.count):
        own: StageRuns = outline.partition.signature_runs[outline.partition.stage_signatures[at]]
        assert case.trace(at).trace.long < 0
        whole = case.trace(at).profile()
        assert whole is not None
        assert outline.rank_program.peaks(own, weights, case.pipelined) == pytest.approx(whole.peaks(PLAYED, weights))


def test_long_runs_are_cut_short() -> None:
    """Twelve equal layers: the trace that peaks come from has four of them."""
    setting = Setting(load(MODELS[0], 8), Job(batch=8), parse("dp1"), trainer("pytorch"))
    outline = lower(setting)
    runs = outline.partition.runs(0)
    cut, whole = (outline.rank_program.trace(runs, pipelined=False, long=long).trace for long in (True, False))
    layers = [sum(one.opens and one.run == cut.long for one in trace.forward.intervals) for trace in (cut, whole)]
    assert layers == [PLAYED, 12]
