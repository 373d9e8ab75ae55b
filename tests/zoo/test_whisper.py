"""Whisper: published sizes, agreement with PyTorch, training."""

import pytest

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.whisper import PRESETS
from language import assert_trains

# As transformers counts the models of the hub, where positions of sound are parameters. The paper (table 1) and the
# list of the released code round them: 39, 74, 244, 769, 1550 millions, and 809 of turbo
COUNTS = {
    "whisper-tiny": 37_760_640,
    "whisper-base": 72_593_920,
    "whisper-small": 241_734_912,
    "whisper-medium": 763_857_920,
    "whisper-large-v2": 1_543_304_960,
    "whisper-large-v3": 1_543_490_560,
    "whisper-large-v3-turbo": 808_878_080,
}
ROUNDED = dict(zip(COUNTS, (39, 74, 244, 769, 1550, 1550, 809), strict=True))

SMALL = "layers=2,hidden=64,heads=4,vocab=96,mels=8,frames=48,seq=24,positions=32"


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count
    assert count / 1e6 == pytest.approx(ROUNDED[name], rel=0.035)


def test_every_size_is_published() -> None:
    assert {*COUNTS, "whisper"} == set(PRESETS)


@pytest.mark.parametrize(
    "spec", [f"whisper:{SMALL}", f"whisper:{SMALL},decoder_layers=1,dtype=bf16", f"whisper:{SMALL},attention=math"]
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.005)
    assert_same_names(spec)


def test_trains() -> None:
    assert_trains(f"whisper:{SMALL}", steps=32, frozen=1)


@pytest.mark.parametrize(("field", "said"), [("seq=449", "seq=449"), ("frames=3001", "frames=3001")])
def test_lengths_that_do_not_fit(field: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        zoo.load(f"whisper:{field}")
