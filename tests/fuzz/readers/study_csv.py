"""Tables of measured runs for `validate`."""

from fuzz.mutate import csv_form
from fuzz.reader import ROOT, Reader, command

NAMES = ("vtrain_single", "vtrain_multi", "llm_measured", "finetune_measured")
NAMES += ("cnn_measured", "ultrascale_h100", "paradl")


def samples() -> list[bytes]:
    folder = ROOT / "studies" / "published"
    found = [b"\n".join((folder / f"{name}.csv").read_bytes().split(b"\n")[:4]) + b"\n" for name in NAMES]
    others = ("sanity/sanity.csv", "collectives/measured.csv", "kernels/measured.csv")
    return [*found, *(b"\n".join((ROOT / "studies" / name).read_bytes().split(b"\n")[:3]) + b"\n" for name in others)]


READER = Reader(
    form=csv_form,
    samples=samples,
    entries=(
        command("validate", "{file}"),
        command("validate", "{file}", "--json"),
        command("validate", "{file}", "--rows"),
        command("validate", "{file}", "--table"),
    ),
    ending=".csv",
)
