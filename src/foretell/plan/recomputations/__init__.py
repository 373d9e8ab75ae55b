"""Ways to recompute activations, one file each. A file has one name, `RECOMPUTATION`."""
