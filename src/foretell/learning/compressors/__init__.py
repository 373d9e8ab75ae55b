"""What becomes of gradients before they travel: one file a compressor, the file's name its name."""
