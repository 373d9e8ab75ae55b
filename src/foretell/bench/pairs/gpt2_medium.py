"""GPT2-medium at the size of Wikitext-103 (survey, Table 3): random tokens, or `--task tokens:FILE`.

LAMB needs norms of whole weights, which half of the engines do not have; AdamW is what all of them can do.
"""

from foretell.bench.pair import Pair

TOKENS = 103_227_021
SEQUENCE = 1024

PAIR = Pair(
    title="GPT2-medium at 1,024 tokens",
    model=f"gpt2-medium:seq={SEQUENCE},dropout=0",
    task="synthetic",
    batch=32,
    optimizer="adamw",
    rate=0.001,
    epoch_samples=TOKENS // SEQUENCE,
    steps=20,
    look=0,
    target=None,
    device="cuda",
    precision="+amp_bf16",
)
