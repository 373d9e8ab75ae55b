"""Records of `foretell calibrate`."""

from fuzz.mutate import json_form
from fuzz.reader import TINY, Reader, command, files

CPU = ("--on", "this-machine", "--plan", "dp1", "--batch", "8", "--calibration", "{file}")
GPU = ("--on", "2xh200", "--plan", "dp2", "--batch", "8", "--calibration", "{file}")
READER = (
    Reader(
        form=json_form,
        samples=files("tests/fuzz/samples/calibration.json"),
        entries=(
            command("predict", TINY, *CPU),
            command("predict", "lenet", *CPU, "--json"),
            command("results", "show", "{file}"),
        ),
    ),
    Reader(
        form=json_form,
        samples=files("tests/fuzz/samples/calibration-h200.json"),
        entries=(
            command("predict", TINY, *GPU, "--json"),
            command("predict", "lenet", *GPU, "--optimizer", "sgd"),
            command("fit", TINY, *GPU),
        ),
    ),
)
