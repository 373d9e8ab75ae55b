"""States and gradients in shares: among the data ranks, and among those that have parts of one sequence."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretell
from foretell.dialects import Launch, dialect, open_configuration, put_together, taken_apart, write
from foretell.errors import BadInput
from foretell.model.source import load
from foretell.model.totals import totals
from foretell.oracle.planning import space_of
from foretell.oracle.proposals import policies
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.data import Data
from foretell.plan.text import parse
from questions import asked

MODEL = "llama:layers=4,hidden=256,heads=8,ffn=512,vocab=1024,seq=128"


def kinds(plan: str, trainer: str) -> dict[str, float]:
    found = foretell.predict(MODEL, "8xh100", plan, 8, trainer=trainer)
    return found.memory.by_kind


@pytest.mark.parametrize(("storage", "ways"), [("zero1", 1), ("zero2", 8), ("zero3", 8)])
def test_megatron_fsdp_has_shards_of_gradients(storage: str, ways: int) -> None:
    """optim keeps all gradients, optim_grads and optim_grads_params a share of them, each of 4 bytes."""
    parameters = totals(load(MODEL, 8)).parameters
    assert kinds(f"dp8:{storage} +bf16", "megatron-core")["gradients"] == pytest.approx(4 * parameters / ways)


@pytest.mark.parametrize("trainer", ["megatron-core", "torchtitan", "deepspeed"])
@pytest.mark.parametrize("plan", ["dp1:{} cp8:alltoall", "dp2:{} cp4:alltoall", "dp4:{} cp2:alltoall"])
def test_context_ranks_have_shares_as_data_ranks_do(trainer: str, plan: str) -> None:
    for storage in ("zero2", "zero3"):
        found, data = kinds(plan.format(storage), trainer), kinds(f"dp8:{storage}", trainer)
        assert found["states"] == pytest.approx(data["states"])
        assert found.get("gradients") == pytest.approx(data.get("gradients"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("megatron-lm", "dp1:zero1 cp8:ring +m2 +bf16"),
        ("megatron-bridge", "dp1:zero1 cp8:ring +m2 +bf16"),
        ("torchtitan", "dp1:zero3 cp8:ring +bf16"),
        ("torchtitan", "dp1:zero2 cp4:ring tp2:sp +bf16"),
        ("accelerate", "dp1:zero3 cp8:ring +bf16"),
        ("nanotron", "dp1:zero1 cp8:ring +m2 +bf16"),
    ],
)
def test_one_data_rank_comes_back_with_its_shares(name: str, text: str, tmp_path: Path) -> None:
    plan = parse(text)
    recipe = taken_apart(plan, batch=plan.microbatches, model="llama3-8b", sequence=8192)
    file = tmp_path / dialect(name).file
    file.write_text(write(dialect(name), recipe).text)
    assert put_together(open_configuration(str(file)).recipe(Launch(8, plan.microbatches))).axes == plan.axes


def test_torchtitan_shares_among_context_ranks_alone_have_no_word(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 1\n"
        "context_parallel_degree = 4\n"
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\n'
    )
    with pytest.raises(BadInput, match="shares among the context ranks alone"):
        open_configuration(str(file)).recipe(Launch(8, 2))


def test_the_search_has_one_data_rank_with_shares_where_context_ranks_have_them() -> None:
    (question,) = asked("llama3-8b", "8xh100", 8, trainer="megatron-core")
    meshes = list(space_of(question).meshes())
    alone = [axes for axes in meshes if any(isinstance(axis, Data) and axis.world == 1 for axis in axes)]
    assert {next(axis.storage for axis in axes if isinstance(axis, Data)) for axes in alone} == {
        "zero1",
        "zero2",
        "zero3",
    }
    assert all(any(isinstance(axis, Context) and axis.ranks > 1 for axis in axes) for axes in alone)


def test_what_would_fit_with_activations_on_the_host() -> None:
    """Both on the host are said in the order of the grammar."""
    found = [str(one.plan()) for one in policies(parse("dp8:zero3 +recompute:block +offload:activations +bf16"))]
    assert found == ["dp8:zero3 +recompute:block +bf16 +offload:optimizer,activations"]
