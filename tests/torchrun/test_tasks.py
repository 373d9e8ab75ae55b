"""What models are trained on: the same on every rank, in the model's shapes, and learnable."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from foretell.errors import BadInput
from foretell.runtime.assignment import Assignment
from foretell.runtime.launch import Ranks
from foretell.runtime.tasks import TASKS, Batch

IMAGES = Batch((torch.zeros(6, 3, 12, 12),), torch.zeros(6, dtype=torch.int64))
TOKENS = Batch((torch.zeros(4, 9, dtype=torch.int64),), torch.zeros(4, 9, dtype=torch.int64))
CASES = (("synthetic", IMAGES), ("synthetic", TOKENS), ("digits", IMAGES), ("text", TOKENS))


@pytest.mark.parametrize(("name", "like"), CASES)
def test_batches_have_the_shapes_that_were_asked_for(name: str, like: Batch) -> None:
    assert not TASKS[name].unfit(like, 1000)
    for batch in islice(TASKS[name].batches(like, 1), 3):
        for one, other in zip((*batch.inputs, batch.target), (*like.inputs, like.target), strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)


@pytest.mark.parametrize(("name", "like"), CASES)
def test_a_seed_says_all(name: str, like: Batch) -> None:
    one, again, other = (next(TASKS[name].batches(like, seed)).inputs[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert name == "synthetic" or not torch.equal(one, other)


def test_the_next_character_is_the_target() -> None:
    batch = next(TASKS["text"].batches(TOKENS, 3))
    assert torch.equal(batch.inputs[0][:, 1:], batch.target[:, :-1])
    assert batch.target.max() < 128


@pytest.mark.parametrize(
    ("name", "like", "classes", "why"),
    [
        ("digits", TOKENS, 100, "reads something else"),
        ("digits", IMAGES, 9, "10 classes"),
        ("text", IMAGES, 1000, "reads something else"),
        ("text", TOKENS, 100, "vocabulary of 100"),
    ],
)
def test_what_does_not_suit_is_refused(name: str, like: Batch, classes: int, why: str) -> None:
    assert why in TASKS[name].unfit(like, classes)


@pytest.mark.parametrize(
    ("model", "task", "rate"),
    [("lenet", "digits", 0.003), ("llama:layers=1,hidden=64,heads=4,ffn=96,vocab=128,seq=32", "text", 0.01)],
)
def test_something_is_learnt_on_two_ranks(ranks: Ranks, model: str, task: str, rate: float) -> None:
    reports = ranks.run(Assignment(model=model, plan="dp2", batch=64, task=task, steps=37, rate=rate))
    losses = reports[0].losses
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


def test_a_task_that_does_not_suit_ends_the_run(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match="reads something else"):
        ranks.run(Assignment(model="lenet", plan="dp2", batch=4, task="text"))
    with pytest.raises(BadInput, match="no task is called 'poems'"):
        ranks.run(Assignment(model="lenet", plan="dp1", batch=4, task="poems"))
