"""Devices of one's own, that a cluster's file names."""

from fuzz.mutate import toml_form
from fuzz.reader import TINY, Reader, command, files, naming

CLUSTER = 'title = "ours"\ndevice = "{file}"\n[[levels]]\nname = "node"\nsize = 8\nlink = "nvlink4-switch"\n'
READER = Reader(
    form=toml_form,
    samples=files("examples/clusters/our-card.toml"),
    entries=(
        naming(CLUSTER, command("predict", TINY, "--on", "cluster.toml", "--plan", "dp2", "--batch", "8")),
        naming(
            CLUSTER,
            command("predict", TINY, "--on", "cluster.toml", "--plan", "tp2 dp4 +bf16", "--batch", "8", "--json"),
        ),
        naming(CLUSTER, command("fit", "lenet", "--on", "cluster.toml", "--batch", "8", "--plan", "dp1")),
        naming(CLUSTER, command("describe", "cluster.toml")),
    ),
    ending=".toml",
)
