"""The zoo's modules, traced, give the graphs that the zoo itself writes down."""

from __future__ import annotations

import pytest

from foretell import modules
from foretell.model import zoo
from foretell.model.graph import Graph
from foretell.model.importers.torch_trace import trace
from foretell.model.totals import totals

EXPERTS = "experts=16,expert_ffn=32,ffn=96,query_rank=32,kv_rank=16,head_dim=16,rotary_dim=8,value_dim=16"
SCANS = "scan_heads=8,scan_head_dim=16,state=8,groups=2,chunk=16"
EYES = "hidden=64,heads=4,ffn=96,patch=8,image=32"
RULE = "hidden=64,experts=8,top_k=2,shared_ffn=32,rule_heads=4,rule_keys=2,rule_head_dim=16,rule_key_dim=8"
SPECS = [
    "alexnet:image=96",
    "amoebanet:repeats=1,filters=32,image=32,classes=10",
    "bert:layers=3,hidden=64,heads=4,ffn=128,seq=32,vocab=500",
    "bert:layers=2,hidden=64,heads=4,ffn=128,seq=32,vocab=500,objective=pretraining,predictions=5,attention=math",
    f"clip:layers=3,{EYES},text_layers=3,text_hidden=32,text_heads=2,text_ffn=48,vocab=96,seq=16,embedding=32",
    "convnext:image=64,stochastic_depth=0.1",
    "cosmoflow:image=32",
    f"deepseek:layers=5,hidden=64,heads=4,vocab=500,seq=32,{EXPERTS}",
    "densenet:image=64,layers=2/2/2/2",
    "dit:layers=3,hidden=64,heads=4,image=8,classes=10",
    "efficientdet:image=128,classes=5",
    "efficientnet:image=64,stochastic_depth=0.1",
    "gpt:layers=3,hidden=64,heads=4,vocab=500,seq=32",
    "gpt:layers=3,hidden=64,heads=4,vocab=500,seq=32,positions=alibi,embedding_norm=true,dtype=bf16,attention=efficient",
    "gemma:layers=6,hidden=64,heads=4,kv_heads=2,head_dim=16,vocab=500,seq=32,ffn=96,window=8,global_every=3",
    "gemma2-2b:layers=4,hidden=64,heads=4,kv_heads=2,head_dim=16,vocab=500,seq=32,ffn=96,window=8",
    "glm:layers=4,hidden=64,heads=4,kv_heads=2,head_dim=16,rotary_dim=8,vocab=500,seq=32,ffn=32,shared_ffn=32,dense_ffn=96",
    "googlenet:image=64",
    "gpt_oss:layers=4,hidden=64,heads=4,kv_heads=2,head_dim=16,vocab=500,seq=32,ffn=96,window=8,experts=8",
    "inception",
    "iresnet18:image=32,classes=10",
    "jamba:layers=4,period=4,offset=2,hidden=64,heads=4,kv_heads=2,vocab=96,seq=4,ffn=48,dense_ffn=48,experts=4,state=4",
    "latent_unet:width=32/64,depth=1/2,heads=2/4,image=16,text=24,seq=8,blocks=1",
    "lenet",
    f"llava:layers=3,{EYES},vocab=96,seq=40,vision_layers=3,vision_hidden=32,vision_heads=2,vision_ffn=48",
    "llama:layers=3,hidden=64,heads=4,kv_heads=2,vocab=500,seq=32,ffn=96",
    "llama:layers=3,hidden=64,heads=4,vocab=500,seq=32,ffn=96,qk_norm=true,window=16,dtype=bf16,attention=efficient",
    "llama4:layers=8,hidden=64,heads=4,kv_heads=2,head_dim=16,vocab=500,seq=32,ffn=32,shared_ffn=32",
    "lstm:layers=3,hidden=32,vocab=100,seq=8",
    "lstm:cell=gru,hidden=32,vocab=100,seq=8,dropout=0.1",
    "mixture:layers=3,hidden=64,heads=4,kv_heads=2,vocab=500,seq=32,ffn=96",
    "mamba2:layers=1,hidden=64,vocab=500,head_dim=16,state=8,chunk=16,seq=32",
    "mlp",
    "mobilenet:image=64",
    "mobilenet:variant=v3-small,image=64",
    f"nemotron_h:layers=4,pattern=M-*-,{SCANS},hidden=64,heads=4,kv_heads=2,head_dim=16,ffn=96,vocab=500,seq=32",
    "olmo2:layers=3,hidden=64,heads=4,vocab=500,seq=32,ffn=96",
    "paradl:network=alexnet",
    "resnet:image=64",
    "swin:image=64,window=2,layers=2/2/6/2,dropout=0.1",
    "t5:layers=3,hidden=64,heads=4,head_dim=16,ffn=96,vocab=500,seq=32,target_seq=16",
    "transformer:layers=3,hidden=64,heads=4,ffn=96,vocab=500,seq=32,target_seq=16",
    "unet:image=64,levels=3,width=8",
    "unet:image=32,levels=3,width=8,dims=3,norm=group,up=bilinear",
    "vgg:image=64",
    "whisper:layers=3,hidden=64,heads=4,vocab=96,mels=8,frames=48,seq=24,positions=32",
    "vit:layers=3,hidden=64,heads=4,ffn=128,image=64,dropout=0.1",
]


WRITTEN_OUT = (
    f"qwen3_next:layers=2,global_every=2,{RULE},heads=4,kv_heads=2,head_dim=16,rotary_dim=8,vocab=96,seq=64,ffn=32"
)


def traced(spec: str, batch: int) -> Graph:
    """The graph of the zoo's module of this name, by tracing it."""
    sample = modules.example(spec, batch)
    return trace(lambda: modules.build(spec), sample.inputs, lambda y: sample.loss(y, sample.target), name=spec)


@pytest.mark.parametrize("spec", SPECS)
def test_traced_module_has_the_graph_of_the_zoo(spec: str) -> None:
    theirs, ours = traced(spec, 2), zoo.load(spec, 2)
    traced_totals, zoo_totals = totals(theirs), totals(ours)
    assert traced_totals.parameters == zoo_totals.parameters
    assert traced_totals.trainable == zoo_totals.trainable
    assert traced_totals.buffer_bytes == zoo_totals.buffer_bytes
    assert traced_totals.forward.matrix == zoo_totals.forward.matrix
    assert traced_totals.backward.matrix == zoo_totals.backward.matrix
    assert abs(traced_totals.saved_bytes - zoo_totals.saved_bytes) <= 0.02 * zoo_totals.saved_bytes
    assert [block.times for block in theirs.blocks if block.times > 1] == [
        block.times for block in ours.blocks if block.times > 1
    ]
    assert theirs.warnings == ()


def test_the_delta_rule_is_written_out() -> None:
    """Traced, its products are operators of their own, whose gradients the tracer makes of what they keep: the forward
    pass is the same, the backward pass has none of the products that a kernel makes again, and no inverse kept."""
    theirs, ours = traced(WRITTEN_OUT, 2), zoo.load(WRITTEN_OUT, 2)
    traced_totals, zoo_totals = totals(theirs), totals(ours)
    assert traced_totals.parameters == zoo_totals.parameters
    assert traced_totals.forward.matrix == zoo_totals.forward.matrix
    assert traced_totals.backward.matrix < zoo_totals.backward.matrix
    assert [warning for warning in theirs.warnings if "linalg_solve_triangular" not in warning] == []


def test_every_family_is_traced() -> None:
    families = {type(zoo.parse(spec)[1]).__module__.rpartition(".")[2] for spec in (*SPECS, WRITTEN_OUT)}
    assert families == set(zoo.FAMILIES)
