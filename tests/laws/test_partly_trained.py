"""Laws of programs that train some of their weights: adapters, layers that a user froze."""

from __future__ import annotations

import functools

import msgspec
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from foretell.cost.price import priced
from foretell.hardware.catalog import cluster
from foretell.model.adapters import adapted
from foretell.model.fold import Repetition as Stretch
from foretell.model.fold import cut, unfold
from foretell.model.gradients import as_trained
from foretell.model.graph import Flat, Graph
from foretell.model.importers.torch_trace import trace
from foretell.model.partly import partly_trained
from foretell.model.prompts import prompted
from foretell.model.totals import totals
from foretell.oracle.predict import Prediction, predict
from foretell.plan.fitness import fits, refusals
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram
from foretell.program.lower import lower
from foretell.program.verify import verify
from foretell.timeline.simulate import simulate
from program_cases import WIDTH, Decoder, load, program, traffic
from reference_player import played, stage_layers

SIZES = "layers=4,hidden=64,heads=8,vocab=256,seq=32"
LLAMA = f"llama:{SIZES},kv_heads=4,head_dim=8,ffn=96"
MIXTURE = f"mixture:{SIZES},kv_heads=8,head_dim=8,ffn=32,experts=8,top_k=2"
WIDE = "llama:layers=4,hidden=2048,heads=16,vocab=8192,seq=1024,kv_heads=4,head_dim=128,ffn=4096,dtype=bf16"
MODELS = (LLAMA, MIXTURE, f"gpt:{SIZES}", f"bert:{SIZES},ffn=128", "t5:layers=2,hidden=64,heads=8,vocab=256,seq=32")


def of(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


PLANS = st.tuples(
    of("", "pp2:1f1b", "pp2:gpipe", "pp2:interleaved,v2", "pp2:zb-h1", "pp2:dualpipe"),
    of("", "dp2", "dp2:zero1", "dp2:zero2", "dp2:zero3", "dp2:ep2", "dp2:zero3,shard2", "ps2:sync", "local2:tau3"),
    of("", "cp2:ring", "cp2:alltoall"),
    of("", "tp2", "tp2:sp", "filter2", "channel2"),
    of("", "+recompute:block", "+recompute:attention", "+recompute:full"),
    of("", "+offload:weights", "+offload:optimizer,weights"),
).map(lambda words: " ".join(["+m4", *(word for word in words if word)]))


@given(of(*MODELS), PLANS, st.integers(1, 9), of("pytorch", "fsdp", "torchtitan", "megatron-core", "deepspeed"))
def test_programs_with_adapters_pass_every_check(model: str, plan: str, rank: int, trained_by: str) -> None:
    parsed = parse(f"{plan} +lora{rank}")
    setting = Setting(load(model, 8), Job(batch=8 * parsed.microbatches), parsed, trainer(trained_by))
    assume(fits(setting))
    made = expand(lower(setting))
    assert verify(made, setting.graph) == ()
    trained = totals(adapted(setting.graph, rank)).trainable
    memory = [stage.memory for stage in made.stages]
    assert sum(one.trained for one in memory) <= trained * (2 if "dualpipe" in plan else 1)
    assert all(one.updated <= one.trained <= one.parameters for one in memory)


def predicted(model: str | Graph, plan: str, trained_by: str = "pytorch-compiled", batch: int = 16) -> Prediction:
    parsed = parse(plan)
    graph = load(model, batch // parsed.microbatches) if isinstance(model, str) else model
    return predict(Setting(graph, Job(batch=batch), parsed, trainer(trained_by)), cluster("8xh100"))


def frozen(graph: Graph, *trained: str) -> Graph:
    """The model with only these weights trained, as one block."""
    flat = unfold(graph.blocks)
    tensors = tuple(msgspec.structs.replace(t, trainable=t.trainable and t.name in trained) for t in flat.tensors)
    found = as_trained(flat, Flat(tensors, flat.nodes))
    return msgspec.structs.replace(graph, blocks=cut(found, [Stretch(0, len(found.nodes), 1)]))


@pytest.mark.parametrize("plan", ["dp1 +bf16", "dp2 +bf16", "dp4:zero3 +bf16", "tp2 +bf16", "pp2 +m4 +bf16"])
def test_adapters_need_less_memory_and_time_than_all_weights(plan: str) -> None:
    """Of the device: adapters are more kernels to launch, and a late host can make them slower."""
    full, thin, thick = (predicted(WIDE, f"{plan} +captured{more}") for more in ("", " +lora8", " +lora64"))
    assert thin.memory_bytes < thick.memory_bytes < full.memory_bytes
    assert thin.step_seconds < thick.step_seconds
    assert thin.step_seconds < full.step_seconds
    assert thin.memory.by_kind["states"] < 0.05 * full.memory.by_kind["states"]
    all_weights, adapters = (
        sum(stage.memory.gradients for stage in of_graph(load(WIDE, 16), f"{plan}{more}").stages)
        for more in ("", " +lora8")
    )
    assert 0 < adapters < 0.05 * all_weights  # whether any are there at the fullest moment or not


def test_adapters_take_longer_than_gradients_of_inputs_alone() -> None:
    """A model of which only the first norm is trained has every gradient of an input, and hardly any other."""
    graph = load(WIDE, 16)
    inputs = predicted(frozen(graph, "layers.0.attention_norm.weight"), "dp1 +bf16")
    assert inputs.step_seconds < predicted(WIDE, "dp1 +bf16 +lora8").step_seconds


@pytest.mark.parametrize(
    "plan",
    [
        *("dp2 +lora8", "dp2:zero3 +lora8", "pp2:1f1b tp2 +m4 +lora8", "pp2:zb-h1 dp2:zero1 +m4 +lora8"),
        *("dp1 +offload:weights", "dp4:zero3 +offload:optimizer,weights", "dp2 +m2 +offload:weights"),
        *("pp2:1f1b +m4 +offload:weights", "pp2:interleaved,v2 dp2 +m4 +offload:optimizer,weights"),
    ],
)
def test_composition_and_simulation_agree(plan: str) -> None:
    parsed = parse(f"{plan} +bf16")
    setting = Setting(load(WIDE, 16 // parsed.microbatches), Job(batch=16), parsed, trainer("pytorch-compiled"))
    on = cluster("8xh100")
    assert predict(setting, on).step_seconds == pytest.approx(simulate(priced(setting, on)).step_seconds, rel=0.03)


TINY = Decoder()
RANK = 4


def adapters(hidden: int = TINY.hidden, ffn: int = TINY.ffn, inner: int = TINY.heads * TINY.head_dim) -> int:
    """What is trained of the small decoder, whose keys are as many as its queries."""
    return TINY.layers * RANK * (4 * (hidden + inner) + 3 * (hidden + ffn))


def test_only_trained_weights_are_summed_but_all_are_gathered() -> None:
    found = traffic(program(TINY.model, f"dp2:zero3 +lora{RANK}", 4))
    assert found["reduce-scatter", "dp", "weight gradients"] == (TINY.layers, adapters() * WIDTH)
    layers = TINY.layers * TINY.layer + adapters()
    # a layer is gathered for each pass, what is in none stays: halves of them
    assert found["all-gather", "dp", "weights"] == (2 * TINY.layers + 1, (2 * layers + TINY.root) / 2 * WIDTH)


@pytest.mark.parametrize("level", ["zero1", "zero2"])
def test_frozen_weights_do_not_come_back_after_the_update(level: str) -> None:
    found = traffic(program(TINY.model, f"dp2:{level} +lora{RANK}", 4))
    assert found["all-gather", "dp", "weights"] == (1, adapters() / 2 * WIDTH)
    memory = program(TINY.model, f"dp2:{level} +lora{RANK}", 4).stages[0].memory
    beside = 1.5 if level == "zero2" else 1  # FSDP2 keeps the shares beside what it has gathered
    assert memory.weights == beside * (TINY.weights + adapters()) * WIDTH
    assert memory.updated == adapters() / 2


def test_a_tensor_axis_cuts_the_side_of_an_adapter_that_its_layer_is_cut_along() -> None:
    """Whole beside it: the first matrix of query, key, value, gate and up, the second of output and down."""
    made = program(TINY.model, f"tp2 +lora{RANK}", 4)
    inner = TINY.heads * TINY.head_dim
    whole = TINY.layers * RANK * (5 * TINY.hidden + 2 * TINY.hidden)
    cut_up = TINY.layers * RANK * (3 * inner + 2 * TINY.ffn + inner + TINY.ffn)
    assert made.stages[0].memory.trained == whole + cut_up / 2
    assert not any("lora" in note for note in made.notes)


# What a user froze. ----------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.layers = nn.ModuleList(Block() for _ in range(6))
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@functools.cache
def traced(layers: int) -> Graph:
    """The first dense layer and so many blocks are frozen; with 7, the head as well."""
    net = Net()
    net.first.requires_grad_(layers == 0)
    for layer in net.layers[:layers]:
        layer.requires_grad_(False)
    net.head.requires_grad_(layers < 7)
    return trace(net, (torch.randn(8, 16),), torch.sum, name=f"{layers} frozen")


def of_graph(graph: Graph, plan: str, trained_by: str = "fsdp") -> ExpandedProgram:
    parsed = parse(plan)
    return expand(lower(Setting(graph, Job(batch=graph.batch * parsed.microbatches), parsed, trainer(trained_by))))


FROZEN_PLANS = (
    *("dp1", "dp2", "dp2:zero1", "dp2:zero3", "tp2", "dp1 +recompute:block", "dp1 +recompute:full", "pp2:1f1b +m2"),
    *("pp3:gpipe +m4", "pp2:zb-h1 dp2:zero3 +m2", "pp2:1f1b +m2 +recompute:block", "dp2 +offload:weights"),
)


@pytest.mark.parametrize("layers", [0, 2, 4, 6, 7])
@pytest.mark.parametrize("plan", FROZEN_PLANS)
def test_programs_of_models_that_are_frozen_in_part_pass_every_check(layers: int, plan: str) -> None:
    graph = traced(layers)
    made = of_graph(graph, plan)
    assert verify(made, graph) == ()
    if made.kinds[0].ranks == 1 and len(made.kinds) == 1:
        assert made.stages[0].memory.trained == totals(graph).trainable


@pytest.mark.parametrize("layers", [0, 4])
@pytest.mark.parametrize("plan", [*FROZEN_PLANS[:6], *FROZEN_PLANS[7:], "pp2:1f1b +m2 +offload:optimizer,weights"])
def test_memory_of_a_stage_is_what_its_bodies_take(layers: int, plan: str) -> None:
    """Found from kinds of layers, and from the program as it is written."""
    graph, parsed = traced(layers), parse(plan)
    setting = Setting(graph, Job(batch=graph.batch * parsed.microbatches), parsed, trainer("fsdp"))
    outline, made = lower(setting), expand(lower(setting))
    for at, stage in enumerate(made.stages):
        found = played(outline.graph, stage_layers(stage), pipelined=len(made.kinds) > 1)
        root = outline.weight_state.care(outline.own(at), outline.holders(at, outline.own(at))).root_bytes
        samples = outline.partition.signature_runs[
            outline.partition.stage_signatures[at]
        ].inputs  # lie there beside what layers make
        given = sum(outline.layout.held_bytes(*home) for home in samples)
        assert stage.memory.kept == sum(found.kept.values()) + given
        assert stage.memory.forward_peak == sum(found.forward.values()) + given + root
        assert stage.memory.backward_peak == sum(found.backward.values()) + given + root


def test_a_frozen_stage_sends_its_output_and_gets_no_gradient() -> None:
    graph = traced(4)
    made = of_graph(graph, "pp2:1f1b +m2")
    (first, second) = ({key[:1] + key[2:] for key in traffic(made, place)} for place in (0, 1))
    assert first == {("send", "activations")}
    assert second == {("receive", "activations")}
    assert made.stages[0].memory.kept == graph.batch // 2 * 16 * 8  # the samples it was given, of 16 whole numbers
    assert predict_of(graph, "pp2:1f1b +m2").step_seconds > 0
    assert traffic(of_graph(traced(2), "pp2:1f1b +m2"), 1).keys() >= {("send", "pp", "gradients")}


def predict_of(graph: Graph, plan: str) -> Prediction:
    parsed = parse(plan)
    setting = Setting(graph, Job(batch=graph.batch * parsed.microbatches), parsed, trainer("pytorch"))
    return predict(setting, cluster("8xh100"))


@pytest.mark.parametrize("layers", [2, 4, 6, 7])
@pytest.mark.parametrize("plan", ["dp2", "dp2:zero3 +recompute:block", "pp2:1f1b +m2", "pp3:gpipe dp2:zero3 +m4"])
def test_composition_and_simulation_agree_on_frozen_layers(layers: int, plan: str) -> None:
    graph, parsed = traced(layers), parse(plan)
    setting = Setting(graph, Job(batch=graph.batch * parsed.microbatches), parsed, trainer("pytorch-compiled"))
    on = cluster("8xh100")
    simulated = simulate(priced(setting, on)).step_seconds
    assert predict(setting, on).step_seconds == pytest.approx(simulated, rel=0.03)


def test_layers_without_a_backward_pass_are_gathered_once_and_do_not_run_again() -> None:
    passes = {layers: of_graph(traced(layers), "dp2:zero3 +recompute:block") for layers in (0, 4)}
    gathers = {layers: traffic(made)["all-gather", "dp", "weights"][0] for layers, made in passes.items()}
    assert gathers == {0: 2 * 6 + 1, 4: 4 + 2 * 2 + 1}
    again = {
        layers: {action.path.split(".")[1] for action, _ in made.computations(made.kinds[0]) if action.again}
        for layers, made in passes.items()
    }
    assert again == {0: {"0"}, 4: {"4", "5"}}  # the six equal layers are written once


def test_nothing_trained_at_all_is_a_forward_pass() -> None:
    graph = traced(7)
    assert not any(action.part != "forward" for action, _ in of_graph(graph, "dp1").computations(_kind(graph)))
    assert predict_of(graph, "dp2").step_seconds < predict_of(traced(0), "dp2").step_seconds


def _kind(graph: Graph) -> object:
    return of_graph(graph, "dp1").kinds[0]


def test_adapters_beside_weights_that_are_frozen_already_are_refused() -> None:
    graph = traced(2)
    (found,) = refusals(Setting(graph, Job(batch=8), parse("dp2 +lora4"), trainer("pytorch")))
    assert found.rule == "adapters"
    assert "14 weights" in found.why


HALF = f"{LLAMA},dtype=bf16"
KINDS = ("+train:last2", "+train:norms", "+train:attention,head", "+prompt4", "+prefix4")


@pytest.mark.parametrize("word", KINDS)
@pytest.mark.parametrize("plan", ["dp2", "dp2:zero3", "tp2", "pp2:1f1b +m4", "dp2:zero1 tp2:sp +m2"])
def test_programs_that_train_a_part_pass_every_check(word: str, plan: str) -> None:
    """They train what they say, less than all, and take less time and memory than training all weights."""
    parsed = parse(f"{plan} {word}")
    setting = Setting(load(HALF, 8), Job(batch=8 * parsed.microbatches), parsed, trainer("pytorch"))
    assert fits(setting)
    made = expand(lower(setting))
    assert verify(made, setting.graph) == ()
    memory = [stage.memory for stage in made.stages]
    assert 0 < sum(one.trained for one in memory) < totals(setting.graph).trainable / 2
    part, whole = predicted(WIDE, f"{plan} {word}"), predicted(WIDE, plan)
    assert part.memory.by_kind["states"] < whole.memory.by_kind["states"]
    assert part.step_seconds < whole.step_seconds


def test_what_prompts_and_prefixes_train_by_hand() -> None:
    """A prompt: its tokens by the hidden size. A prefix: keys and values of 4 heads of 8 in 4 layers."""
    graph = load(HALF, 2)
    assert totals(prompted(graph, 5)).trainable == 5 * 64
    assert totals(prompted(graph, 5, prefix=True)).trainable == 5 * 2 * 4 * 8 * 4
    nodes = [node for block in prompted(graph, 5, prefix=True).blocks for node in block.nodes]
    attended = [node.sizes() for node in nodes if node.kind == "attention"]
    assert {(sizes["query"], sizes["key"]) for sizes in attended} == {(32, 37)}


def test_gradients_end_at_the_first_layer_that_is_trained() -> None:
    graph = partly_trained(load(LLAMA, 2), (), 2)
    flat = unfold(graph.blocks)
    with_gradients = {
        node.path.split(".")[1] for node in flat.nodes if node.gradients and node.path.startswith("layers.")
    }
    assert with_gradients == {"2", "3"}
    assert any(node.gradients for node in flat.nodes if not node.path.startswith("layers."))  # norm, head, loss
