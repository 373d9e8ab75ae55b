"""The survey of frameworks (Nichols et al. 2021, arXiv 2111.04949): its own numbers, and its matrix predicted."""
