"""Models with their tasks: one file each, with a `PAIR`."""
