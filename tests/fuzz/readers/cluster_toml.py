"""Clusters of one's own, and the devices that they name."""

from pathlib import Path

from fuzz.mutate import toml_form
from fuzz.reader import ROOT, TINY, Reader, command, files


def _card(folder: Path) -> None:
    (folder / "our-card.toml").write_bytes((ROOT / "examples/clusters/our-card.toml").read_bytes())


READER = Reader(
    form=toml_form,
    samples=files(
        "examples/clusters/our-room.toml", "examples/clusters/our-cards.toml", "src/foretell/hardware/clusters/d*.toml"
    ),
    entries=(
        command("predict", TINY, "--on", "{file}", "--plan", "dp2", "--batch", "8"),
        command("predict", TINY, "--on", "2x{file}", "--plan", "dp8", "--batch", "8", "--json"),
        command("describe", "{file}"),
        command("goodput", TINY, "--on", "{file}", "--device-mtbf", "50000h", "--storage", "1 GB/s"),
    ),
    ending=".toml",
    beside=_card,
)
