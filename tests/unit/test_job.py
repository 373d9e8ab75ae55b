"""Jobs: what is to be done, and how a batch divides."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput, UnknownName
from foretell.model.optimizer import OPTIMIZERS
from foretell.plan.job import Job, batch_ranks, divides, make_job, micro_batch, per_rank
from foretell.plan.text import parse
from law_examples import reached


def test_the_fingerprint_is_the_same_on_every_machine() -> None:
    job = Job(batch=1536, sequence=2048, optimizer="adamw", tokens=300_000_000_000, trainer="megatron-lm-2021")
    assert job.fingerprint == "b5f86c7a8538b3f2"


@given(st.integers(1, 10**6), st.integers(0, 10**5), st.sampled_from(sorted(OPTIMIZERS)))
def test_jobs_are_values(batch: int, sequence: int, optimizer: str) -> None:
    job = Job(batch=batch, sequence=sequence, optimizer=optimizer)
    again = msgspec.json.decode(msgspec.json.encode(job), type=Job)
    assert again == job
    assert hash(again) == hash(job)
    assert again.fingerprint == job.fingerprint
    assert msgspec.structs.replace(job, batch=batch + 1).fingerprint != job.fingerprint


def test_the_trainer_says_what_the_job_does_not() -> None:
    assert make_job(64, trainer="chainer").optimizer == "sgd"
    assert make_job(64, trainer="chainer", optimizer="lars").optimizer == "lars"
    assert make_job(64) == Job(batch=64)
    assert make_job(64, trainer="megatron-lm").trainer == "megatron-lm-2023"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"batch": 0}, "a batch of 0"),
        ({"batch": -8}, "a batch of -8"),
        ({"batch": 8, "sequence": -1}, "sequence is -1"),
        ({"batch": 8, "tokens": -1}, "tokens is -1"),
        ({"batch": 8, "optimizer": "adamm"}, "'adamm'"),
    ],
)
def test_bad_jobs(fields: dict[str, int], says: str) -> None:
    with pytest.raises(BadInput) as problem:
        Job(**fields)  # type: ignore[arg-type]
    assert says in str(problem.value)
    assert problem.value.where.startswith("job, ")


def test_an_unknown_trainer() -> None:
    with pytest.raises(UnknownName, match="megatron"):
        make_job(8, trainer="megatronlm")


def test_steps() -> None:
    """GPT-3: 300 billion tokens, 1,536 sequences of 2,048 a step."""
    assert Job(batch=1536, sequence=2048, tokens=300 * 10**9).steps() == 95368
    assert Job(batch=1536, tokens=300 * 10**9).steps(sequence=2048) == 95368
    assert Job(batch=256, samples=1_281_167 * 90).steps() == 450_411
    assert Job(batch=256).steps() == 0
    with pytest.raises(BadInput, match="no sequence length"):
        Job(batch=256, tokens=1000).steps()


@pytest.mark.parametrize(
    ("plan", "ranks"),
    [
        ("dp8", 8),
        ("pp4:1f1b dp8:zero1 tp8 +m16", 8),
        ("dp4:zero3,shard8", 32),
        ("dp8:zero1,ep4 cp2", 8),
        ("tp8", 1),
        ("ps4:ssp,s3", 4),
        ("local8:tau10", 8),
        ("spatial2x2 dp2", 2),
    ],
)
def test_ranks_that_split_the_batch(plan: str, ranks: int) -> None:
    assert batch_ranks(parse(plan)) == ranks
    assert per_rank(3, parse(plan)) == 3 * ranks


def test_a_batch_per_rank_is_at_least_one() -> None:
    with pytest.raises(BadInput, match="a batch of 0 per rank"):
        per_rank(0, parse("dp8"))


@pytest.mark.parametrize(
    ("batch", "plan", "why", "way_out"),
    [
        (100, "dp8 +m16", "100 is not a multiple of 8 data-parallel ranks x 16 micro-batches = 128", "--batch 128"),
        (200, "dp8 tp2 +m16", "200 is not a multiple of 8 data-parallel ranks", "--batch 128 or --batch 256"),
        (48, "dp8 +m4", "= 32", "--batch 32 or --batch 64"),
        (7, "dp2", "7 is not a multiple of 2 data-parallel ranks", "--batch 6 or --batch 8"),
    ],
)
def test_a_batch_that_does_not_divide(batch: int, plan: str, why: str, way_out: str) -> None:
    (refusal,) = divides(Job(batch=batch), parse(plan))
    assert refusal.rule == "batch divides"
    assert why in refusal.why
    assert refusal.way_out == way_out


@pytest.mark.reaches(whole=3, refused=3)
@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 5000), st.booleans())
def test_a_micro_batch_is_whole_or_refused_and_the_way_out_works(
    ranks: int, count: int, batch: int, whole: bool
) -> None:
    plan = parse(f"dp{ranks} +m{count}")
    batch *= ranks * count if whole else 1
    refused = list(divides(Job(batch=batch), plan))
    assert bool(refused) == (batch % (ranks * count) != 0)
    reached("refused" if refused else "whole")
    if not refused:
        assert micro_batch(Job(batch=batch), plan) * ranks * count == batch
    for refusal in refused:
        for choice in refusal.way_out.replace(", or ", " or ").split(" or "):
            word, _, size = choice.partition(" ")
            mended = (int(size), plan) if word == "--batch" else (batch, parse(f"dp{ranks} {choice}"))
            assert not list(divides(Job(batch=mended[0]), mended[1]))
