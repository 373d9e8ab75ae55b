"""The small sibling of VGG-16 on ImageNet: a VGG of five convolutions that reads handwritten digits.

AdamW, not the survey's SGD: without batch norm, which would tell ranks' samples apart, SGD takes more epochs to begin
than a quick comparison has.
"""

from foretell.bench.pair import Pair

PAIR = Pair(
    title="a small VGG on handwritten digits",
    model="vgg:convolutions=1/1/1/1/1,image=32,classes=10,width=8,pooled=1,dense=64,dropout=0",
    task="digits",
    batch=32,
    optimizer="adamw",
    rate=0.003,
    steps=60,
    look=10,
    target=0.5,
    region="[features.0..features.8]",
)
