"""Logs of trainers as anchors."""

from fuzz.mutate import text_form
from fuzz.reader import TINY, Reader, command, texts

ON = (TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "8")
MEGATRON = "".join(
    f" iteration {at} | elapsed time per iteration (ms): {1200 + at}.5 | global batch size: 8 | max reserved: 4096.0\n"
    for at in range(4)
)
READER = Reader(
    form=text_form,
    samples=texts(
        MEGATRON, "time_per_iteration_ms: 31.5\n" * 3, "train_step_timing in s=0.25\n", "step_time: 3.1 ms\n"
    ),
    entries=(command("predict", *ON, "--anchor", "{file}"), command("predict", *ON, "--anchor", "{file}", "--json")),
    ending=".log",
)
