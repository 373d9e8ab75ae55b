"""Lengths of examples, as a file or as a mean and a maximum."""

from fuzz.mutate import argument_form, text_form
from fuzz.reader import Reader, command, texts

ON = ("predict", "gpt2:layers=2", "--on", "2xh100", "--plan", "dp2 +m2", "--batch", "8")
READER = (
    Reader(
        form=text_form,
        samples=texts("12\n31\n8\n8\n", '{"length": 30}\n{"input_ids": [4, 5, 6]}\n'),
        entries=(
            command(*ON, "--lengths", "{file}"),
            command(*ON, "--lengths", "{file}", "--padding", "packed", "--json"),
        ),
        ending=".jsonl",
    ),
    Reader(
        form=argument_form,
        samples=texts("12,32", "600,1024"),
        entries=(command(*ON, "--samples", "1e6", "--padding", "cut", "--lengths", "{text}"),),
        ending=".txt",
    ),
)
