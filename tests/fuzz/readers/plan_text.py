"""Plans as text."""

from fuzz.mutate import argument_form
from fuzz.reader import TINY, Reader, command, texts

READER = Reader(
    form=argument_form,
    samples=texts(
        "dp8:zero3 +bf16",
        "pp2:1f1b,split=1/1 dp2:zero1 tp2:sp +m4 +bf16 +recompute:block",
        "pp2:gpipe dp4 +m8 +fp8",
        "dp2:zero2 cp4 +recompute:attention +offload:optimizer",
        "local8:tau10 +bf16",
    ),
    entries=(
        command("predict", TINY, "--on", "8xh100", "--batch", "64", "--plan", "{text}"),
        command("program", TINY, "--batch", "64", "--plan", "{text}"),
        command("describe", "{text}"),
        command("diff", TINY, "--on", "8xh100", "--batch", "64", "dp8", "{text}", "--json"),
        command("systems", "--plan", "{text}"),
        command("fit", TINY, "--on", "8xh100", "--plan", "{text}", "--json"),
        command("plan", TINY, "--on", "8xh100", "--batch", "64", "--only", "dp,tp", "--fix", "{text}"),
    ),
    ending=".txt",
)
