"""Tables of runs, as anchors: CSV and JSON lines."""

from fuzz.mutate import text_form
from fuzz.reader import TINY, Reader, command, texts

ON = (TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "8")
HEAD = "model,plan,cluster,batch,seq,trainer,optimizer,outcome,step_ms,memory_bytes\n"
LINES = '{"plan": "dp2", "batch": 8, "step_seconds": 0.02}\n{"plan": "tp2", "batch": 8, "step_seconds": 0.03}\n'
READER = Reader(
    form=text_form,
    samples=texts(HEAD + ",dp2 +bf16,2xh100,8,,pytorch,adamw,ok,20.5,1e9\n,dp2,,8,,,,oom,,\n", LINES),
    entries=(command("predict", *ON, "--anchor", "{file}"), command("stack", "fuzzed", *ON, "--anchor", "{file}")),
    ending=".csv",
)
