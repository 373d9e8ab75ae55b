"""What workers and servers do: one file an algorithm, the file's name its name, with its paper and its invariant."""
