"""Readers of models from elsewhere: each gives a graph, after which there is no framework."""
