"""Parts of every image on every rank, with halos that are exchanged."""

from foretell.bench.engine import Engine

ENGINE = Engine(title="spatial", plan="spatial{n}{region}", least=2)
