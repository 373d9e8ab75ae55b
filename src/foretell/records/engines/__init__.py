"""Ways to go through records: one file an engine, each with `select(files, condition)`. All give the same lines."""
