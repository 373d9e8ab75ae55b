"""What the search offers for a trainer: stages with short ends, all virtual stages that divide, what its files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.dialects import Launch, dialect, open_configuration, put_together, taken_apart, write
from foretell.errors import BadInput
from foretell.oracle.planning import space_of
from foretell.plan.offered import cannot_say, says_less
from foretell.plan.plan import axis_text, policy_text
from foretell.plan.stages import long_ends, short_ends
from foretell.plan.strategies.pipeline import virtual_stages
from foretell.plan.syntax import spelled_list
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from questions import asked


@pytest.mark.parametrize(
    ("layers", "stages", "short", "long"),
    [
        (126, 16, ["7/8x14/7", "8x15/6"], []),
        (126, 64, ["1/2x62/1"], []),
        (127, 16, ["8x15/7"], []),
        (28, 8, ["2/4x6/2"], []),
        (34, 32, [], ["2/1x30/2"]),
        (80, 16, [], []),
        (3, 2, ["2/1"], []),
    ],
)
def test_ends_of_pipelines(layers: int, stages: int, short: list[str], long: list[str]) -> None:
    """All layers are there, the stages between are equal, and equal stages are left to the trainer."""
    for found, texts in ((short_ends(layers, stages), short), (long_ends(layers, stages), long)):
        cuts = list(found)
        assert [spelled_list(cut) for cut in cuts] == texts
        assert all(sum(cut) == layers and len(cut) == stages for cut in cuts)


def test_virtual_stages_are_all_that_divide_the_layers_of_a_rank() -> None:
    assert {2, 5, 10} <= set(virtual_stages(80, 8))
    assert {2, 4, 8} <= set(virtual_stages(126, 8))  # 16 layers on the fullest rank
    assert max(virtual_stages(126, 2)) == 63
    assert all(count * 8 <= 80 for count in virtual_stages(80, 8))


def pipelines(model: str, on: str, batch: int, name: str, ranks: int) -> set[str]:
    (question,) = asked(model, on, batch, trainer=name)
    return set(map(axis_text, space_of(question).pipelines(ranks)))


def test_stages_as_they_were_trained_are_offered() -> None:
    """Llama-3-405B on 16 stages as its authors ran it, and NVIDIA's recipe with eight virtual stages."""
    assert "pp16:1f1b,split=7/8x14/7" in pipelines("llama3-405b", "1024xh100", 512, "nemo", 16)
    assert "pp8:interleaved,v8,split=1/2x62/1" in pipelines("llama3-405b", "1024xh100", 512, "nemo", 8)
    assert {"pp8:interleaved,v5", "pp8:interleaved,v10"} <= pipelines(
        "llama3-70b", "256xh100", 1024, "megatron-core", 8
    )


def test_each_number_of_stages_has_few_cuts() -> None:
    for ranks in (2, 4, 8, 16):
        found = pipelines("llama3-405b", "1024xh100", 512, "nemo", ranks)
        kinds = [text.partition(",split=")[0] for text in found]
        assert max(kinds.count(kind) for kind in kinds) <= 3


def test_torchtitan_is_offered_what_it_can_say() -> None:
    found = pipelines("llama3-70b", "256xh100", 1024, "torchtitan", 8)
    assert {"pp8:1f1b", "pp8:interleaved,v2", "pp8:interleaved,v4,split=2/3x17/2x13/1"} <= found
    assert not any("zb-h1" in text or text == "pp8:dualpipe" for text in found)
    (question,) = asked("llama3-70b", "256xh100", 1024, trainer="torchtitan")
    space = space_of(question)
    chosen = {policy_text(policy) for policies in space.policies for policy in policies}
    assert chosen == {"+bf16", "+recompute:operators", "+recompute:block"}
    assert not any("alltoall" in axis_text(axis) for axes in space.meshes() for axis in axes)


def test_what_is_typed_or_fixed_is_taken_all_the_same() -> None:
    (question,) = asked("llama3-8b", "16xh100", 64, trainer="torchtitan", fix="cp2:alltoall +recompute:every2")
    meshes = list(space_of(question).meshes())
    assert meshes and all("cp2:alltoall" in map(axis_text, axes) for axes in meshes)


def test_a_change_says_no_less_than_what_was_typed() -> None:
    offered = trainer("torchtitan").offered
    typed, block = parse("dp4:zero3 cp2:alltoall +m4"), parse("dp4:zero3 cp2:alltoall +m4 +recompute:block")
    assert [refusal.rule for refusal in cannot_say(offered, typed)] == ["trainer's configuration"]
    assert not says_less(offered, block, typed)
    assert says_less(offered, parse("dp4:zero3 cp2:alltoall +m4 +recompute:attention"), typed)


@pytest.mark.parametrize(("name", "head"), [("torchtitan", "lm_head"), ("torchtitan-toml", "output")])
def test_torchtitan_names_the_modules_of_each_stage(name: str, head: str, tmp_path: Path) -> None:
    plan = parse("pp2:interleaved,v3,split=1/2x3/1/1 dp2:zero3 +m4 +bf16")
    recipe = taken_apart(plan, batch=8, sequence=2048)
    written = write(dialect(name), recipe)
    stages = written.document["parallelism.module_fqns_per_model_part"]
    assert stages[0] == ["tok_embeddings", "layers.0"]
    assert stages[1] == ["layers.1", "layers.2"]
    assert stages[-1] == ["layers.8", "norm", head]
    file = tmp_path / dialect(name).file
    file.write_text(written.text)
    assert put_together(open_configuration(str(file)).recipe(Launch(4, 8))) == plan
    file.write_text(written.text.replace('["layers.7"]', "[]"))
    with pytest.raises(BadInput, match="a stage without layers"):
        open_configuration(str(file)).recipe(Launch(4, 8))


def test_groups_of_shares_are_read_from_deepspeed(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text('{"train_batch_size": 16, "zero_optimization": {"stage": 3, "mics_shard_size": 4}}')
    recipe = open_configuration(str(file)).recipe(Launch(8, 16))
    assert (recipe.storage, recipe.shard, recipe.data) == ("zero3", 4, 8)


def test_a_recipe_keeps_nothing_that_the_plan_says_otherwise() -> None:
    """NeMo's recipe of Llama-3-405B has virtual stages, and counts embedding and loss as layers; that of 8B has cp2."""
    written = write(dialect("nemo"), taken_apart(parse("pp4:1f1b dp2:zero1 +m8 +bf16"), batch=16, model="llama3-405b"))
    strategy = "recipe.trainer.strategy."
    for said in (
        "virtual_pipeline_model_parallel_size = None",
        "account_for_embedding_in_pipeline_split = False",
        "account_for_loss_in_pipeline_split = False",
        "context_parallel_size = 1",
        "expert_model_parallel_size = 1",
    ):
        assert f"{strategy}{said}\n" in written.text
    assert "recipe.model.config.recompute_granularity = None\n" in written.text


def test_a_file_that_cannot_say_what_runs_again_is_not_offered_without_it() -> None:
    """Without recomputation the plan might not fit: whole blocks are nearer, where the trainer has them."""
    recipe = taken_apart(parse("dp4:zero3 cp2:alltoall +m2 +bf16 +recompute:every2"), batch=8, sequence=2048)
    with pytest.raises(BadInput, match="exchange alltoall; recompute every2") as caught:
        write(dialect("torchtitan-toml"), recipe)
    assert "--plan 'dp4:zero3 cp2:ring +m2 +recompute:block +bf16'" in caught.value.fix
