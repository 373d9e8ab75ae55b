"""Numbers as people type them: batches, tokens, prices, sizes, times, rates, faults."""

from fuzz.mutate import argument_form
from fuzz.reader import TINY, Reader, command, texts

ON = ("predict", TINY, "--on", "2xh100", "--plan", "dp2")
LEARN = ("simulate", "lenet", "--on", "4xv100-16", "--learn", "squares", "--workers", "2", "--algorithms", "sync")
SAID = {
    (*ON, "--batch"): ("8", "4096 tokens"),
    (*ON, "--batch-per-rank"): ("4",),
    (*ON, "--batch", "8", "--tokens"): ("15T", "1.5e9"),
    (*ON, "--batch", "8", "--samples"): ("300M",),
    (*ON, "--batch", "8", "--tokens", "1T", "--epochs"): ("2", "1.5"),
    (*ON, "--batch", "8", "--tokens", "1T", "--price"): ("$2.5", "2 per hour"),
    (*ON, "--batch", "8", "--tokens", "1T", "--storage", "1 GB/s", "--json", "--dataset"): ("2 TB",),
    (*ON, "--batch", "8", "--tokens", "1T", "--device-mtbf", "50000h", "--storage"): ("20 GB/s",),
    (*ON, "--batch", "8", "--tokens", "1T", "--storage", "20 GB/s", "--device-mtbf"): ("50000h",),
    (*ON, "--batch", "8", "--input-rate"): ("1000",),
    ("predict", "gpt2:layers=2", *ON[2:], "--batch", "8", "--seq"): ("64",),
    (*ON, "--batch", "8", "--slow-rank"): ("1:2x",),
    (*ON, "--batch", "8", "--json", "--slow-link"): ("0-1:4x",),
    (*ON, "--batch", "8", "--traffic"): ("0-1:500Mbit",),
    ("goodput", "--checkpoint", "40s", "--mtbf"): ("3h",),
    ("goodput", "--mtbf", "3h", "--checkpoint"): ("40s",),
    ("goodput", "--checkpoint", "40s", "--mtbf", "3h", "--every"): ("30min",),
    ("goodput", "--checkpoint", "40s", "--mtbf", "3h", "--restart"): ("5min",),
    ("plan", TINY, "--on", "2xh100", "--batch", "8", "--only", "dp", "--max-memory"): ("60 GB",),
    ("plan", TINY, "--on", "h100", "--batch", "8", "--only", "dp", "--gpus"): ("1..2",),
    ("scale", TINY, "--on", "h100", "--batch", "8", "--only", "dp", "--gpus"): ("1..4", "1,2"),
    ("plan", TINY, "--on", "2xh100", "--only", "dp", "--noise-scale", "64 samples", "--batch"): ("8,16",),
    (*LEARN, "--rate"): ("0.5,0.1",),
    (*LEARN, "--momentum"): ("0.9",),
    (*LEARN, "--jitter"): ("0.2",),
    (*LEARN, "--stragglers"): ("0.1x5",),
    (*LEARN, "--slow"): ("1x3",),
    (*LEARN, "--failures"): ("600/30",),
    (*LEARN, "--changes"): ("-0@20",),
    (*LEARN, "--seed"): ("3",),
    (*LEARN[:-2], "--algorithms"): ("sync,ssp:s=3", "async@sharded:k=4+topk:share=0.01"),
}  # fmt: skip
READER = tuple(
    Reader(form=argument_form, samples=texts(*samples), entries=(command(*words, "{text}"),), ending=".txt")
    for words, samples in SAID.items()
)
