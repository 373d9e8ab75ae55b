"""Trainers of one's own."""

from fuzz.mutate import toml_form
from fuzz.reader import TINY, Reader, command, files

OWN = b"""summary = "ours"
based_on = "megatron-core"

[memory]
reserved = 0.05

usable = 0.9

[host]
launch = "4 us"
sharpness = 8

[attention]
flash_backward = 0.8
layer_passes = 12

[fusion]
backward = 2
logit_passes = 3

[gradients]
rate = 0.7
"""


def samples() -> list[bytes]:
    return [OWN] * 12 + files("src/foretell/plan/trainers/[mp]*.toml")()


READER = Reader(
    form=toml_form,
    samples=samples,
    entries=(
        command("predict", TINY, "--on", "2xh100", "--plan", "dp2 +bf16", "--batch", "8", "--trainer", "{file}"),
        command(
            "predict", TINY, "--on", "4xh100", "--plan", "pp2:1f1b tp2 +m2 +bf16", "--batch", "8", "--trainer", "{file}"
        ),
        command(
            "fit", "resnet50", "--on", "2xv100-16", "--batch", "8", "--plan", "dp2", "--trainer", "{file}", "--json"
        ),
        command("plan", TINY, "--on", "2xh100", "--batch", "8", "--only", "dp,tp", "--trainer", "{file}"),
    ),
    ending=".toml",
)
