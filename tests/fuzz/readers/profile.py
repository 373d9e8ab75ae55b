"""Records of `foretell profile`."""

from fuzz.mutate import json_form
from fuzz.reader import Reader, command, files

ON = ("lenet", "--on", "this-machine", "--plan", "dp1", "--batch", "8", "--profile", "{file}")
READER = Reader(
    form=json_form,
    samples=files("tests/fuzz/samples/profile.json"),
    entries=(
        command("predict", *ON),
        command("predict", *ON, "--json"),
        command("results", "show", "{file}"),
    ),
)
