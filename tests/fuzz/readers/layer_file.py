"""Layer files of the oracle paper."""

from fuzz.mutate import text_form
from fuzz.reader import Reader, command, files

ON = ("{file}", "--oracle", "paper")
READER = Reader(
    form=text_form,
    samples=files("src/foretell/model/zoo/paradl_nets/*.net"),
    entries=(
        command("predict", *ON, "--ranks", "16", "--batch", "64"),
        command("predict", *ON, "--ranks", "8", "--batch", "64", "--json", "--release", "table3"),
        command("predict", *ON, "--plan", "spatial4", "--batch", "64"),
        command("predict", *ON, "--plan", "pp4:gpipe +m8", "--batch", "64"),
        command("predict", *ON, "--plan", "dp4 filter4", "--batch", "64", "--release", "2021"),
        command("analyze", "{file}"),
        command("predict", "{file}", "--on", "4xv100-16", "--plan", "dp4", "--batch", "8"),
    ),
    ending=".net",
)
