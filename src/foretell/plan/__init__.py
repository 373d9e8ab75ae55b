"""What is done with ranks: plans, their parts, their rules. Called, `foretell.plan(...)`, it is the verb."""

from foretell.callable_package import make_callable

make_callable(__name__, "foretell.functions.searches")
