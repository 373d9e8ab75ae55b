"""PyTorch's pipelining, all forward passes and then all backward ones (GPipe, TorchGPipe)."""

from foretell.bench.engine import MICRO, Engine

ENGINE = Engine(title="PyTorch pipelining, GPipe", plan="pp{n}:gpipe +m{m}", batch_rule=MICRO, least=2)
