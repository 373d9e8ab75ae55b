"""Input channels of every layer in shares."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="channel", plan="channel{n}", least=2)
