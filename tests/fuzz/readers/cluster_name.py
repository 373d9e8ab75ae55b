"""Names of clusters, and whatever else is typed for a name."""

from fuzz.mutate import argument_form
from fuzz.reader import TINY, Reader, command, texts

READER = (
    Reader(
        form=argument_form,
        samples=texts(
            "64xh100", "8x8xa100-80,roce-400", "2x4xv100-16,eth-1", "dgx-a100", "abci:64", "2x4xh100,4xib-ndr"
        ),
        entries=(
            command("predict", TINY, "--on", "{text}", "--plan", "dp8", "--batch", "64"),
            command("fit", TINY, "--on", "{text}", "--plan", "dp2", "--batch", "64", "--json"),
            command("describe", "{text}"),
            command("goodput", "--on", "{text}", TINY, "--mtbf", "3h", "--storage", "1 GB/s"),
        ),
        ending=".txt",
    ),
    Reader(
        form=argument_form,
        samples=texts("devices", "links", "strategies"),
        entries=(command("list", "{text}"), command("list", "{text}", "--json")),
        ending=".txt",
    ),
    Reader(
        form=argument_form,
        samples=texts("h100", "pytorch", "gpt2", "adamw", "ib-ndr"),
        entries=(command("describe", "{text}"),),
        ending=".txt",
    ),
    Reader(
        form=argument_form,
        samples=texts("schema", "list"),
        entries=(command("{text}"), command("{text}", "--json")),
        ending=".txt",
    ),
    Reader(form=argument_form, samples=texts("predict", "plan"), entries=(command("schema", "{text}"),), ending=".txt"),
)
