"""Records of `foretell run`."""

from fuzz.mutate import json_form
from fuzz.reader import Reader, command, files

READER = (
    Reader(
        form=json_form,
        samples=files("tests/fuzz/samples/run*.json"),
        entries=(
            command("results", "show", "{file}"),
            command("results", "show", "{file}", "--json"),
            command("compare", "{file}"),
            command("compare", "{file}", "--json"),
            command("compare", "{file}", "--html", "{file}.html"),
            command("systems", "--record", "{file}"),
        ),
    ),
    Reader(
        form=json_form,
        samples=files("tests/fuzz/samples/run-async.json"),
        entries=(command("simulate", "--record", "{file}"), command("simulate", "--record", "{file}", "--json")),
    ),
    Reader(
        form=json_form,
        samples=files("tests/fuzz/samples/run-checkpoints.json"),
        entries=(
            command("goodput", "{file}", "--checkpoint", "40s", "--mtbf", "3h"),
            command("goodput", "{file}", "--checkpoint", "40s", "--mtbf", "3h", "--json"),
        ),
    ),
    Reader(
        form=json_form,
        samples=files("tests/fuzz/samples/run-noise.json"),
        entries=(
            command("plan", "lenet", "--on", "2xh100", "--only", "dp", "--batch", "8,16", "--noise-scale", "{file}"),
        ),
    ),
)
