"""foretell tells how a training run will go before you rent the GPUs, and then proves it."""

__version__ = "0.1.0"
