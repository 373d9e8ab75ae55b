"""A pipeline that never runs empty: every mini-batch updates, old weights are kept for it (PipeDream)."""

from foretell.bench.engine import STALE, Engine

ENGINE = Engine(
    title="pipeline with stashed weights", plan="pp{n}:stash +m{n}", batch_rule=STALE, synchronous=False, least=2
)
