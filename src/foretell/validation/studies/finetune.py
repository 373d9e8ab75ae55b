"""Published fine-tuning runs: the columns of `llm`, and `method` with what adapters have.

`method` is full, LoRA or QLoRA, with `(emb)` where embeddings are trained too; `lora_rank` and `lora_targets` say which
adapters, `base_quantization` in which form the frozen weights lie.
"""

from foretell.validation.studies import llm

COLUMNS = llm.COLUMNS | {"method"}

rows = llm.rows
