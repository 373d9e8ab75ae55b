"""Links of one's own, that a cluster's file names."""

from fuzz.mutate import toml_form
from fuzz.reader import TINY, Reader, command, files, naming

INSIDE = 'title = "ours"\ndevice = "h100"\n[[levels]]\nname = "node"\nsize = 8\nlink = "{file}"\n'
BETWEEN = INSIDE.replace("{file}", "nvlink4") + '[[levels]]\nname = "fabric"\nsize = 2\nlink = "{file}"\nports = 1\n'


def _entries(cluster: str) -> tuple:
    return (
        naming(cluster, command("predict", TINY, "--on", "cluster.toml", "--plan", "dp8", "--batch", "8")),
        naming(cluster, command("predict", TINY, "--on", "cluster.toml", "--plan", "tp4", "--batch", "8", "--json")),
        naming(cluster, command("describe", "cluster.toml")),
    )


READER = (
    Reader(
        form=toml_form, samples=files("src/foretell/hardware/links/nv*.toml"), entries=_entries(INSIDE), ending=".toml"
    ),
    Reader(
        form=toml_form,
        samples=files("src/foretell/hardware/links/[ie]*.toml"),
        entries=_entries(BETWEEN),
        ending=".toml",
    ),
)
