"""Graphs that `foretell analyze --graph` wrote."""

from foretell.model import zoo
from fuzz.mutate import json_form
from fuzz.reader import TINY, Reader, command


def samples() -> list[bytes]:
    return [zoo.load(name, batch=8).to_json() for name in (TINY, "lenet", "mlp", "lstm:layers=2,hidden=16")]


READER = Reader(
    form=json_form,
    samples=samples,
    entries=(
        command("analyze", "{file}"),
        command("analyze", "{file}", "--json"),
        command("predict", "{file}", "--on", "2xh100", "--plan", "dp2"),
        command("predict", "{file}", "--on", "2xh100", "--plan", "tp2", "--json"),
        command("predict", "{file}", "--on", "2xh100", "--plan", "pp2:gpipe +m1"),
        command("program", "{file}", "--plan", "dp2:zero3 +recompute:block"),
    ),
)
