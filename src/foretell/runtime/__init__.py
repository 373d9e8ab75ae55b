"""For real: the plan that was priced runs under PyTorch distributed, and is measured.

A measurement has the shape of a prediction, so that the error is a subtraction. `launch` starts the ranks (or
joins those that somebody else started), `appliers` put a plan's axes and policies on a real module, `counting`
and `measure` watch.
"""
