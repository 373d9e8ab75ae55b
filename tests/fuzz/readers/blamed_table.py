"""The table cuda_gpu_trace of Nsight Systems."""

from fuzz.mutate import text_form
from fuzz.reader import TINY, Reader, command, texts

ON = ("--model", TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "8")
HEAD = "Start (ns),Duration (ns),CorrId,Device,Strm,Name\n"
ROWS = "".join(f"{at * 1000},{800 + at},{at},NVIDIA H100 (0),7,gemm_{at % 3}\n" for at in range(6))
READER = Reader(
    form=text_form,
    samples=texts(HEAD + ROWS, "Processing [a.sqlite]...\n" + HEAD.replace("(ns)", "(us)") + ROWS),
    entries=(command("blame", "{file}", *ON), command("blame", "{file}", "--against", "{file}", "--json")),
    ending=".csv",
)
