"""Updates that torch has no optimizer for: those that large batches need."""
