"""Laws of parts: an axis for a part of a model, what the rest does, and the best border between them."""

from __future__ import annotations

import functools

import msgspec
import pytest

from foretell.cost.price import priced
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.oracle.part_choice import BestPart, best_part, modules, open_axes
from foretell.oracle.planning import answered, space_of
from foretell.oracle.predict import predict
from foretell.oracle.refinement import refine
from foretell.plan.fitness import fits, refusals
from foretell.plan.parts import members
from foretell.plan.setting import Setting
from foretell.plan.strategy import Strategy
from foretell.plan.text import parse
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram
from foretell.program.lower import lower
from foretell.timeline.simulate import simulate
from questions import asked

ON = "16xv100"
RESNET = "resnet18:image=64,classes=16"
VGG = "vgg11:image=64,classes=1000"
UNET = "unet:image=64"


@functools.cache
def setting(model: str, plan: str, batch: int = 16) -> Setting:
    (question,) = asked(model, ON, batch, precision="fp32")
    return space_of(question).setting(parse(f"{plan} +fp32"))


# The rest on other samples. --------------------------------------------------------------------------


def travels(made: ExpandedProgram) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for message, times in made.communications(made.kinds[0]):
        key = (message.kind, message.what)
        found[key] = found.get(key, 0) + times
    return found


def test_samples_change_hands_at_the_border_once_forward_and_once_back() -> None:
    made = travels(expand(lower(setting(VGG, "spatial4[features.0..features.9]:data"))))
    assert made["all-to-all", "activations"] == made["all-to-all", "gradients"] == 1
    whole = travels(expand(lower(setting(VGG, "spatial4[features.0..features.9]"))))
    assert not any(kind == "all-to-all" for kind, _ in whole)
    assert whole["all-gather", "activations"] == 1


def test_every_tensor_that_crosses_the_border_changes_hands() -> None:
    """Each skip of a U-Net goes from its encoder to its decoder on its own, and the way down once."""
    made = travels(expand(lower(setting(UNET, "spatial2[encoder.0..encoder.4]:data"))))
    levels = sum(name.startswith("decoder") for name in modules(setting(UNET, "dp1").graph))
    assert made["all-to-all", "activations"] == levels + 1


def test_with_other_samples_in_the_rest_no_rank_does_what_another_does() -> None:
    """Data ranks everywhere, or images in the first layers: convolutions are as fast, and only messages are added."""
    alone = predict(setting(VGG, "dp4"), cluster(ON))
    shared = predict(setting(VGG, "spatial4[features.0..features.4]:data"), cluster(ON))
    twice = predict(setting(VGG, "spatial4[features.0..features.4]"), cluster(ON))
    assert shared.breakdown["backward"] < 1.05 * alone.breakdown["backward"] < 0.7 * twice.breakdown["backward"]
    assert shared.breakdown["optimizer"] == alone.breakdown["optimizer"]


@pytest.mark.parametrize("part", ["spatial4[features.0..features.4]:data", "spatial2x2[features*]:data"])
def test_the_simulation_agrees(part: str) -> None:
    one = setting(VGG, f"dp2 {part}")
    played = simulate(priced(one, cluster(ON)))
    assert played.step_seconds == pytest.approx(predict(one, cluster(ON)).step_seconds, rel=0.01)


def test_what_does_not_fit_the_rest_is_refused() -> None:
    (refusal,) = refusals(setting(VGG, "dp8 spatial4[features*]:data"), cluster("32xv100"))
    assert refusal.rule == "samples of the rest"
    assert "4 ranks do not divide the 2 samples" in refusal.why
    (refusal,) = refusals(setting(VGG, "spatial2:data"), cluster(ON))
    assert refusal.rule == "a part and a rest"


@pytest.mark.parametrize("word", ["filter", "channel"])
def test_dense_layers_by_weights_beside_convolutions_by_samples(word: str) -> None:
    """Krizhevsky 2014: no rank does what another does, and the weights of dense layers are a share on each."""
    part = f"{word}4[classifier*]"
    samples, alone, twice = (predict(setting(VGG, plan, 64), cluster(ON)) for plan in (f"{part}:data", "dp4", part))
    assert samples.breakdown["backward"] < 1.05 * alone.breakdown["backward"] < 0.7 * twice.breakdown["backward"]
    assert samples.breakdown["optimizer"] < 0.5 * alone.breakdown["optimizer"]
    assert samples.memory_bytes < 0.8 * alone.memory_bytes
    assert samples.step_seconds < alone.step_seconds
    one = setting(VGG, f"dp2 {part}:data", 64)
    played = simulate(priced(one, cluster(ON)))
    assert played.step_seconds == pytest.approx(predict(one, cluster(ON)).step_seconds, rel=0.01)


def test_samples_that_ranks_of_weights_cannot_share_are_refused() -> None:
    (refusal,) = refusals(setting(VGG, "dp8 filter4[classifier*]:data"), cluster("32xv100"))
    assert refusal.rule == "samples of the rest"
    (refusal,) = refusals(setting(VGG, "filter4:data"), cluster(ON))
    assert refusal.rule == "a part and a rest"


def test_a_search_tries_dense_layers_by_weights_unasked() -> None:
    found = answered(asked(VGG, "4xv100", 64, precision="fp32", only=("dp", "filter"))[0])
    best = found.found.best
    assert best is not None and "filter4[classifier.0..classifier.6]:data" in best.plan
    assert predict(found.space.setting(parse(best.plan)), cluster("4xv100")).step_seconds == best.step_seconds


def test_repetitions_have_names_of_their_own() -> None:
    graph = setting("resnet50", "dp1").graph
    assert modules(graph)[4:8] == ("layer1.0", "layer1.1", "layer1.2", "layer2.0")
    last = members(graph, "layer1.2")
    assert last and last == members(graph, "layer1.1")  # one block, taken twice
    with pytest.raises(BadInput, match="no part of resnet50 is called"):
        members(graph, "layer1.3")
    assert fits(setting("resnet50", "spatial2[conv1..layer1.2]"), cluster(ON))


# The best border. ------------------------------------------------------------------------------------


def plans(one: Setting, axis: Strategy) -> dict[str, tuple[float, float]]:
    """Seconds and bytes of every part that begins or ends with the model, or with what is not too small at its end."""
    names = modules(one.graph)
    found: dict[str, tuple[float, float]] = {}
    end = len(names) - (3 if "unet" in one.graph.name and axis.ranks > 2 else 1)  # it has two classes
    for at in range(end + 1):
        for rest in ("", "sample"):
            first, last = (0, at) if axis.word == "spatial" else (at, end)
            if last - first == len(names) - 1 or (first == 0 and axis.word != "spatial"):
                continue
            fields = {"only": f"{names[first]}..{names[last]}"} | ({"rest": rest} if rest else {})
            other = msgspec.structs.replace(axis, **fields)
            axes = tuple(other if own is axis else own for own in one.plan.axes)
            changed = msgspec.structs.replace(one, plan=msgspec.structs.replace(one.plan, axes=axes))
            if fits(changed, cluster(ON)):
                step = predict(changed, cluster(ON))
                found[str(changed.plan)] = step.step_seconds, step.memory_bytes
    return found


CASES = [
    (RESNET, "dp4 spatial4"),
    (RESNET, "dp4 channel2 +m2"),
    (RESNET, "dp2:zero1 filter8"),
    (VGG, "spatial2x2 filter4"),
    (VGG, "dp4:zero3 spatial2"),
    (UNET, "dp4 spatial4"),
    (UNET, "dp2:zero1 filter8"),
]


@pytest.mark.parametrize(("model", "plan"), CASES)
def test_the_best_border_is_that_of_a_loop_over_predict_or_the_bound_says_how_far_it_may_be(
    model: str, plan: str
) -> None:
    one = setting(model, plan)
    for axis in open_axes(one.plan):
        every = plans(one, axis)
        found: BestPart = best_part(one, axis, cluster(ON), float("inf"))
        least = min(seconds for seconds, _ in every.values())
        assert found.best is not None
        assert every[found.best.plan] == (found.best.step_seconds, found.best.memory_bytes)
        assert found.least_seconds <= least <= found.best.step_seconds
        assert found.best.step_seconds <= 1.02 * least


def test_memory_is_kept() -> None:
    one = setting(VGG, "dp4 filter4")
    (axis,) = open_axes(one.plan)
    every = plans(one, axis)
    tight = sorted(memory for _, memory in every.values())[2]
    found = best_part(one, axis, cluster(ON), tight)
    assert found.best is not None and found.best.memory_bytes <= tight
    assert found.best.step_seconds == min(seconds for seconds, memory in every.values() if memory <= tight)


def test_a_search_tells_of_a_part_that_wins() -> None:
    before = answered(asked("vgg16", ON, 16, precision="fp32", only=("spatial", "filter"), fix="spatial2x2 filter4")[0])
    found = refine(before).found
    (told,) = found.finer
    assert told.what == "parts" and before.found.best is not None and found.best is not None
    assert told.plan == found.best.plan and "[features.0.." in told.plan
    assert found.best.step_seconds < 0.95 * before.found.best.step_seconds
    assert before.predicted(parse(told.plan)).step_seconds == told.step_seconds


@pytest.mark.parametrize("fixed", ["spatial4[features.0..features.9]:data", "spatial2x2[features*]", "spatial2x2"])
def test_a_search_with_a_part_has_legal_plans_and_says_what_predict_says(fixed: str) -> None:
    found = answered(asked(VGG, ON, 16, precision="fp32", only=("dp", "spatial"), fix=fixed)[0])
    rows = list(found.found.plans.rows())
    assert len(rows) > 2
    for plan, seconds, memory, _ in rows:
        assert f"{fixed} " in plan
        assert fits(found.space.setting(parse(plan)), cluster(ON))
        said = found.predicted(parse(plan))
        assert (said.step_seconds, said.memory_bytes) == (seconds, memory)


def test_a_part_of_the_user_is_left_alone() -> None:
    found = refine(
        answered(asked(VGG, ON, 16, precision="fp32", only=("dp", "spatial"), fix="spatial4[features*]")[0])
    ).found
    assert found.finer == ()
    assert open_axes(parse("pp2:1f1b dp2 spatial4")) == []
