"""Published fine-tuning runs: the columns of `llm`, and `method` with what adapters have.

`method` is full or LoRA; `lora_rank` and `lora_targets` say which adapters. The plan's `+lora` has adapters on all
dense layers of the layers that repeat. Frozen weights in 4 bits (QLoRA) and adapters beside trained embeddings
cannot be written as a plan.
"""

from foretell.validation.studies import llm

COLUMNS = llm.COLUMNS | {"method"}

rows = llm.rows
