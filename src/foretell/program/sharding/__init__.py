"""How a model is sharded over mesh axes: placements of every tensor, and the collectives that follow from them."""
