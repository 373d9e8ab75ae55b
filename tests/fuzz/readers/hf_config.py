"""Configurations of Hugging Face models."""

from fuzz.mutate import json_form
from fuzz.reader import Reader, command, files

READER = Reader(
    form=json_form,
    samples=files("tests/data/hf/*/config.json"),
    entries=(
        command("analyze", "{file}"),
        command("analyze", "{file}", "--json"),
        command("predict", "{file}", "--on", "8xh100", "--plan", "dp8:zero3 +bf16", "--batch", "8"),
        command("predict", "{file}", "--on", "8xh100", "--plan", "tp2 dp4 +bf16", "--batch", "8", "--json"),
    ),
)
