"""The small sibling of GPT2-medium on Wikitext-103: four layers that read Python's help pages letter by letter."""

from foretell.bench.pair import Pair

PAIR = Pair(
    title="a small GPT on Python's help pages",
    model="gpt2:layers=4,hidden=32,heads=4,vocab=128,seq=64,dropout=0,tied=false",
    task="text",
    batch=16,
    optimizer="adamw",
    rate=0.02,
    steps=80,
    look=20,
    target=0.26,
)
