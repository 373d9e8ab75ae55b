"""Studies against predictions: measured runs, the settings they are, and how far the oracle is from them."""
