"""PyTorch's pipelining, a backward pass as soon as there is one (1F1B)."""

from foretell.bench.engine import MICRO, Engine

ENGINE = Engine(title="PyTorch pipelining, 1F1B", plan="pp{n}:1f1b +m{m}", batch_rule=MICRO, least=2)
