"""What ranks compute, send and hold. Called, `foretell.program(...)`, it is the verb."""

from foretell.callable_package import make_callable

make_callable(__name__, "foretell.functions.plans")
