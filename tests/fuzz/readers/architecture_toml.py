"""Architectures of one's own, that a device's file names."""

from pathlib import Path

from fuzz.mutate import toml_form
from fuzz.reader import ROOT, TINY, Entry, Reader, command, files
from fuzz.readers.device_toml import CLUSTER


def _described(ask: Entry) -> Entry:
    def entry(file: Path, content: bytes) -> None:
        card = (ROOT / "examples/clusters/our-card.toml").read_text().replace('"ampere"', f'"{file.name}"')
        Path("card.toml").write_text(card)
        Path("cluster.toml").write_text(CLUSTER.replace("{file}", "card.toml"))
        ask(file, content)

    return entry


READER = Reader(
    form=toml_form,
    samples=files("src/foretell/hardware/architectures/*.toml"),
    entries=(
        _described(command("predict", TINY, "--on", "cluster.toml", "--plan", "dp2", "--batch", "8")),
        _described(
            command("predict", "lenet", "--on", "cluster.toml", "--plan", "dp8 +bf16", "--batch", "8", "--json")
        ),
        _described(command("describe", "cluster.toml")),
    ),
    ending=".toml",
)
