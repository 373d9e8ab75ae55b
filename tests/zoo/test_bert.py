"""BERT: published sizes, and agreement with PyTorch."""

import pytest

from agreement import assert_agrees, predicted
from foretell.errors import BadInput
from foretell.model import zoo

# Hugging Face transformers: parameters of BertModel, BertForMaskedLM, BertForPreTraining, RobertaModel,
# DistilBertModel under the configurations of bert-base-uncased, bert-large-uncased, roberta-*, distilbert-base-uncased
PUBLISHED = {
    "bert-base": 109_482_240,
    "bert-base-mlm": 109_514_298,
    "bert-base-pretraining": 110_106_428,
    "bert-large": 335_141_888,
    "bert-large-mlm": 335_174_458,
    "bert-large-pretraining": 336_226_108,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "distilbert-base": 66_362_880,
}

SMALL = "layers=2,hidden=128,heads=4,ffn=256,vocab=1000,seq=64"


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(
    "spec",
    [
        "bert-base:seq=128",
        "bert-base-pretraining:seq=128,predictions=20",
        f"bert-base-pretraining:{SMALL}",
        f"bert-base-mlm:{SMALL}",
        f"bert-base-mlm:{SMALL},predictions=10,attention=math",
        f"distilbert-base:{SMALL},activation=relu",
        f"distilbert-base:{SMALL},objective=mlm,predictions=5",
        f"roberta-base:{SMALL},dtype=bf16",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.01 if "bf16" in spec else 0.0)


def test_layers_fold() -> None:
    assert 24 in [block.times for block in zoo.load("bert-large-pretraining").blocks]


@pytest.mark.parametrize(
    "spec",
    ["bert:heads=5", "bert:activation=tan", "bert:seq=1024", "bert:objective=nothing", "bert-base-mlm:predictions=600"],
)
def test_refuses_what_does_not_fit(spec: str) -> None:
    with pytest.raises(BadInput) as refusal:
        zoo.load(spec)
    assert refusal.value.fix
