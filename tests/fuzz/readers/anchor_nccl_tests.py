"""The output of nccl-tests, as an anchor."""

from fuzz.mutate import text_form
from fuzz.reader import TINY, Reader, command, texts

ON = (TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "8")
HEADER = "".join(f"#  Rank {rank:2d} Group  0 Pid  1 on    node0 device  {rank}\n" for rank in range(2))
HEADER += "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
ROWS = "".join(
    f"{1 << at:12d} {1 << at - 2:12d}     float     sum      -1 {90.5 * at} 11.2 11.2      0\n" for at in (20, 24)
)
READER = Reader(
    form=text_form,
    samples=texts(HEADER + ROWS, "all_gather_perf\n" + HEADER + ROWS),
    entries=(command("predict", *ON, "--anchor", "{file}"), command("predict", *ON, "--anchor", "{file}", "--json")),
    ending=".txt",
)
