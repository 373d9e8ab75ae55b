"""The open set of methods after pre-training: one file each, named by its word."""
