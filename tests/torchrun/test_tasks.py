"""What models are trained on: the same on every rank, in the model's shapes, and learnable."""

from __future__ import annotations

import gzip
import math
import re
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy
import pytest
import torch

from foretell.errors import BadInput, ForetellError, MissingExtra
from foretell.runtime.assignment import Assignment
from foretell.runtime.launch import Ranks
from foretell.runtime.tasks import Batch, task
from foretell.runtime.tasks import images as folder_of_images
from foretell.runtime.tasks._images import Images, Labelled, _batch
from foretell.runtime.tasks._own import loss as own_loss
from foretell.runtime.tasks._tokens import Tokens
from foretell.runtime.whole_model import WholeModel
from foretell.trust import trust

IMAGES = Batch((torch.zeros(6, 3, 12, 12),), torch.zeros(6, dtype=torch.int64))
TOKENS = Batch((torch.zeros(4, 9, dtype=torch.int64),), torch.zeros(4, 9, dtype=torch.int64))
CASES = (("synthetic", IMAGES), ("synthetic", TOKENS), ("digits", IMAGES), ("text", TOKENS))


@pytest.mark.parametrize(("name", "like"), CASES)
def test_batches_have_the_shapes_that_were_asked_for(name: str, like: Batch) -> None:
    assert not task(name).unfit(like, 1000)
    for batch in islice(task(name).batches(like, 1), 3):
        for one, other in zip((*batch.inputs, batch.target), (*like.inputs, like.target), strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)


@pytest.mark.parametrize(("name", "like"), CASES)
def test_a_seed_says_all(name: str, like: Batch) -> None:
    one, again, other = (next(task(name).batches(like, seed)).inputs[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert name == "synthetic" or not torch.equal(one, other)


def test_the_next_character_is_the_target() -> None:
    batch = next(task("text").batches(TOKENS, 3))
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
    assert why in task(name).unfit(like, classes)


@pytest.mark.parametrize(
    ("model", "task", "rate"),
    [("lenet", "digits", 0.003), ("llama:layers=1,hidden=64,heads=4,ffn=96,vocab=128,seq=32", "text", 0.01)],
)
def test_something_is_learnt_on_two_ranks(ranks: Ranks, model: str, task: str, rate: float) -> None:
    reports = ranks.run(Assignment(model=model, plan="dp2", batch=64, task=task, steps=37, rate=rate))
    losses = reports[0].losses
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


@pytest.mark.parametrize(("name", "like"), [("digits", IMAGES), ("text", TOKENS), ("code", TOKENS)])
def test_what_is_held_out_is_not_trained_on(name: str, like: Batch) -> None:
    held = {tuple(row.flatten().tolist()) for batch in task(name).held_out(like) for row in batch.inputs[0]}
    seen = {
        tuple(row.flatten().tolist()) for batch in islice(task(name).batches(like, 1), 40) for row in batch.inputs[0]
    }
    assert held
    assert name == "code" or not held & seen  # code repeats itself
    assert sum(len(batch.target) for batch in task(name).held_out(like)) == {"digits": 359}.get(name, 256)


# data of one's own


def _netpbm(path: Path, value: int, colour: bool) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(
        b"P%d # a comment\n 4 3\n255\n" % (6 if colour else 5) + bytes([value] * 12 * (3 if colour else 1))
    )


def test_a_folder_of_images(tmp_path: Path) -> None:
    for at in range(20):
        _netpbm(tmp_path / ("dark" if at % 2 else "light") / f"{at}.ppm", 10 if at % 2 else 240, colour=at % 3 == 0)
    found = task(f"images:{tmp_path}")
    batch = next(found.batches(IMAGES, 0))
    assert batch.inputs[0].shape == IMAGES.inputs[0].shape
    assert [int(bright > 0.5) for bright in batch.inputs[0].mean((1, 2, 3))] == batch.target.tolist()
    assert sum(len(one.target) for one in found.held_out(IMAGES)) == 2
    assert "have 2 classes, this model 1" in found.unfit(IMAGES, 1)
    (tmp_path / "dark" / "broken.ppm").write_bytes(b"P6" + b" " * 5000 + b"x")
    with pytest.raises(BadInput, match="not a binary PPM"):
        _epoch(f"images:{tmp_path}")
    (tmp_path / "bare").mkdir()
    with pytest.raises(BadInput, match=r"no images in .*bare"):
        task(f"images:{tmp_path}")
    (tmp_path / "bare" / "0.ppm").write_bytes(b"P6 4 3 255 x")
    with pytest.raises(BadInput, match="ends before its time"):
        task(f"images:{tmp_path}")  # the first of a class is looked at before anything starts
    with pytest.raises(BadInput, match="a folder for each of 0 classes"):
        task(f"images:{tmp_path / 'dark'}")
    with pytest.raises(BadInput, match="no such folder"):
        task(f"images:{tmp_path / 'grey'}")


def test_an_image_is_the_same_in_every_batch(tmp_path: Path) -> None:
    """Whatever the sizes of the others."""
    own, large = tmp_path / "own.pgm", tmp_path / "large.pgm"
    own.write_bytes(b"P5 4 3 255\n" + bytes(range(0, 240, 20)))
    large.write_bytes(b"P5 90 70 255\n" + bytes(90 * 70))
    pair = Labelled(folder_of_images.ImageFiles([own, large]), torch.tensor([0, 1]))
    alone, beside = (_batch(pair, torch.tensor(rows), IMAGES.inputs[0]).inputs[0][0] for rows in ([0], [0, 1]))
    assert torch.equal(alone, beside)


def _epoch(name: str) -> None:
    """Read every image, those held out too."""
    found = task(name)
    list(islice(found.batches(IMAGES, 0), 20))
    list(found.held_out(IMAGES))


def test_images_are_read_when_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set may be larger than memory."""
    for at in range(40):
        _netpbm(tmp_path / ("dark" if at % 2 else "light") / f"{at}.ppm", at, colour=False)
    read: list[Path] = []
    inner = folder_of_images._netpbm
    monkeypatch.setattr(folder_of_images, "_netpbm", lambda path: (read.append(path), inner(path))[1])
    found = task(f"images:{tmp_path}")
    next(found.batches(IMAGES, 0))
    assert len(read) == 2 + len(IMAGES.target)


@pytest.mark.parametrize(("name", "kind"), [("x.bin", "<u2"), ("x.u32.bin", "<u4"), ("x.npy", "int32")])
def test_a_file_of_tokens(tmp_path: Path, name: str, kind: str) -> None:
    row = numpy.arange(300).astype(kind)
    numpy.save(tmp_path / name, row) if name.endswith("npy") else row.tofile(tmp_path / name)
    found = task(f"tokens:{tmp_path / name}")
    batch = next(found.batches(TOKENS, 0))
    assert torch.equal(batch.target, batch.inputs[0] + 1) and batch.target.max() < 270
    assert min(int(one.inputs[0].min()) for one in found.held_out(TOKENS)) == 270
    assert "has 300 tokens, this model a vocabulary of 299" in found.unfit(TOKENS, 299)


@pytest.mark.parametrize(
    ("content", "why"), [(b"junk", "no NumPy array"), ([-1, 2], "a token -1"), ([0.5], "not of whole numbers")]
)
def test_arrays_that_are_no_tokens_are_told(tmp_path: Path, content: bytes | list[float], why: str) -> None:
    file = tmp_path / "x.npy"
    file.write_bytes(content) if isinstance(content, bytes) else numpy.save(file, numpy.array(content))
    with pytest.raises(BadInput, match=why):
        task(f"tokens:{file}")


def test_files_that_are_too_short_or_missing(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("short")
    with pytest.raises(BadInput, match="5 tokens: too few"):
        next(task(f"tokens:{tmp_path / 'short.txt'}").batches(TOKENS, 0))
    with pytest.raises(BadInput, match="no such file"):
        task("tokens:nowhere.bin")
    with pytest.raises(MissingExtra, match="Fashion-MNIST is not in"):
        task(f"fashion:{tmp_path}")
    with pytest.raises(MissingExtra, match="no epigrams are in"):
        task(f"fortunes:{tmp_path}")
    with pytest.raises(BadInput, match="takes nothing"):
        task("digits:more")


def test_clothes_in_the_format_of_mnist(tmp_path: Path) -> None:
    for name, count in (("train", 12), ("t10k", 5)):
        head = b"".join(number.to_bytes(4, "big") for number in (0x803, count, 28, 28))
        with gzip.open(tmp_path / f"{name}-images-idx3-ubyte.gz", "wb") as file:
            file.write(head + b"".join(bytes([at * 20] * 784) for at in range(count)))
        with gzip.open(tmp_path / f"{name}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(b"".join(number.to_bytes(4, "big") for number in (0x801, count)) + bytes(range(count)))
    found = task(f"fashion:{tmp_path}")
    batch = next(found.batches(IMAGES, 0))
    assert torch.allclose(batch.inputs[0][:, 2, 5, 5], batch.target * 20 / 255)
    assert [one.target.tolist() for one in found.held_out(IMAGES)] == [[0, 1, 2, 3, 4]]


OWN = """
import torch
from torch import nn

def model(batch=8):
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), torch.zeros(batch, 4)

def data(batch, seed, split="train"):
    generator = torch.Generator().manual_seed(seed + (split == "test"))
    for _ in range(3 if split == "test" else 200):
        x = torch.randn(batch, 4, generator=generator)
        yield x, x[:, :3].argmax(1)

def error(outputs, target):
    return nn.functional.cross_entropy(outputs, target)

def too_few(batch):
    yield torch.zeros(1, 4), torch.zeros(1)
"""


def test_model_data_and_loss_of_ones_own(ranks: Ranks, tmp_path: Path) -> None:
    file = tmp_path / "own_run.py"
    file.write_text(OWN)
    trust(*(f"{file}:{name}" for name in ("model", "data", "error", "too_few")))
    given = {"model": f"{file}:model", "task": f"{file}:data", "loss": f"{file}:error", "batch": 32, "rate": 0.02}
    reports = ranks.run(Assignment(**given, plan="dp2", steps=60, validate_every=20))
    assert [one.loss for one in reports[0].checks] == [one.loss for one in reports[1].checks]
    first, *_, last = reports[0].checks
    assert (first.step, first.samples, len(reports[0].checks)) == (23, 23 * 32, 3)
    assert last.loss < first.loss and last.metric > 0.8 and last.seconds > first.seconds
    assert last.seconds > sum(reports[0].steps)  # as in steps and samples, those before the measured ones count
    with pytest.raises(BadInput, match="1 samples, for a batch of 32"):
        ranks.run(Assignment(**{**given, "task": f"{file}:too_few"}, plan="dp1", steps=1))


LIKE = Batch((torch.zeros(4, 2),), torch.zeros(4))

MISTAKES = """
import torch

def narrow(batch): yield torch.zeros(batch, 3), torch.zeros(batch)
def whole(batch): yield torch.zeros(batch, 2, dtype=torch.int64), torch.zeros(batch)
def alone(batch): yield torch.zeros(batch, 2)
def nothing(): return iter(())
def lost(batch): raise OSError("no such disk")
def late(batch):
    yield torch.zeros(batch, 2), torch.zeros(batch)
    raise OSError("the disk is gone")
def many(y, target): return y - target
def apart(y, target): return torch.tensor(1.0)
def short(y): return y.mean()
def wrong(y, target): return y @ target
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("narrow", "it gives 3 floats, and the model reads 2 floats"),
        ("whole", "it gives 2 integers, and the model reads 2 floats"),
        ("alone", "it gives a Tensor"),
        ("nothing", "it gives no batch to train on"),
        ("lost", "OSError: no such disk"),
        ("late", "OSError: the disk is gone"),
    ],
)
def test_mistakes_in_data_of_ones_own_are_told_by_their_line(tmp_path: Path, name: str, said: str) -> None:
    file = tmp_path / "mistakes.py"
    file.write_text(MISTAKES)
    trust(f"{file}:{name}")
    with pytest.raises(ForetellError, match=re.escape(said)) as told:
        row = task(f"{file}:{name}").batches(LIKE, 0)
        _ = [next(row), next(row)]
    assert "mistakes.py" in told.value.where


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("many", "it gives (4, 2) numbers"),
        ("apart", "does not depend on the outputs"),
        ("short", "takes 1 positional argument"),
        ("wrong", "RuntimeError"),
    ],
)
def test_mistakes_in_a_loss_of_ones_own_are_told_by_their_line(tmp_path: Path, name: str, said: str) -> None:
    file = tmp_path / "mistakes.py"
    file.write_text(MISTAKES)
    trust(f"{file}:{name}")
    with pytest.raises(ForetellError, match=re.escape(said)) as told:
        own_loss(f"{file}:{name}")(torch.zeros(4, 2, requires_grad=True), torch.zeros(4, 2))
    assert "mistakes.py" in told.value.where


# held-out data under every plan


LLAMA = "llama:layers=2,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=128,seq=16"


@pytest.mark.parametrize("plan", ["dp2:zero1", "dp2:zero3", "tp2", "pp2:1f1b +m2"])
def test_what_was_learnt_does_not_depend_on_the_plan(ranks: Ranks, plan: str) -> None:
    given = {"model": LLAMA, "task": "text", "batch": 8, "steps": 4, "validate_every": 2, "rate": 0.01}
    one = ranks.run(Assignment(**given, plan="dp1"))[0].checks
    other = ranks.run(Assignment(**given, plan=plan))[0].checks
    assert [check.loss for check in other] == pytest.approx([check.loss for check in one], rel=1e-4)
    assert [check.metric for check in other] == pytest.approx([check.metric for check in one], abs=2e-3)
    for check in (*one, *other):  # a mean over tokens of batches that are equally long
        assert check.perplexity == pytest.approx(math.exp(check.loss), rel=1e-3)


@pytest.mark.parametrize("plan", ["dp2:zero3", "filter2", "spatial2", "pp2:gpipe +m2"])
def test_what_images_taught_does_not_depend_on_the_plan(ranks: Ranks, plan: str) -> None:
    given = {"model": "lenet", "task": "digits", "batch": 8, "steps": 4, "validate_every": 4, "rate": 0.01}
    (one,) = ranks.run(Assignment(**given, plan="dp1"))[0].checks
    (other,) = ranks.run(Assignment(**given, plan=plan))[0].checks
    assert other.loss == pytest.approx(one.loss, rel=1e-4)
    assert other.perplexity is None  # one answer a sample: nothing is spoken


def test_tensors_that_are_not_put_together_are_told() -> None:
    module = torch.nn.BatchNorm1d(3)
    found = WholeModel(lambda: module, cast("Any", None), "--validate-every")
    with pytest.raises(BadInput, match="3 tensors of the model are not whole"):
        found.load({"weight": module.weight, "bias": module.bias})


@pytest.mark.parametrize("kind", ["images", "tokens"])
def test_data_is_read_once(kind: str) -> None:
    read: list[str] = []

    def images() -> tuple[Labelled, Labelled]:
        read.append(kind)
        half = Labelled(torch.zeros(12, 3, 12, 12), torch.zeros(12, dtype=torch.int64))
        return half, half

    def tokens() -> torch.Tensor:
        read.append(kind)
        return torch.zeros(300, dtype=torch.uint8)

    found, like = (Images(kind, 2, images), IMAGES) if kind == "images" else (Tokens(kind, 2, tokens), TOKENS)
    next(found.batches(like, 0))
    assert len(list(found.held_out(like))) == len(list(found.held_out(like)))
    assert read == [kind]


def test_where_nothing_is_held_out(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match="nothing is held out"):
        ranks.run(Assignment(model="lenet", plan="dp1", batch=4, validate_every=2))


def test_a_task_that_does_not_suit_ends_the_run(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match="reads something else"):
        ranks.run(Assignment(model="lenet", plan="dp2", batch=4, task="text"))
    with pytest.raises(BadInput, match="no task is called 'poems'"):
        ranks.run(Assignment(model="lenet", plan="dp1", batch=4, task="poems"))
