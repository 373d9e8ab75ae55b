"""Ways that messages take: one file a topology, the file's name its name."""
