"""Names of models with their fields."""

from fuzz.mutate import argument_form
from fuzz.reader import Reader, command, texts

READER = Reader(
    form=argument_form,
    samples=texts(
        "gpt:layers=2,hidden=64,heads=4,vocab=256,seq=32",
        "llama3-8b:layers=2,seq=128",
        "resnet50:image=64",
        "bert-base:seq=64",
        "mlp:layers=3,hidden=8",
        "lstm:layers=1,hidden=16",
        "mixtral-8x7b:layers=2,experts=4",
        "vit-b16:image=32",
        "unet",
        "t5-small",
    ),
    entries=(
        command("analyze", "{text}"),
        command("analyze", "{text}", "--json"),
        command("predict", "{text}", "--on", "8xh100", "--plan", "dp8 +bf16", "--batch", "8"),
        command("describe", "{text}"),
    ),
    ending=".txt",
)
