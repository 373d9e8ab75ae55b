"""Frameworks and strategies side by side: the same task, model, seed, batch rule and optimizer under every engine."""
