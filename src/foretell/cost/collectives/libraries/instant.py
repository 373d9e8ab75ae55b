"""Messages that take no time: of a rank that is rehearsed while its collectives return at once."""

from foretell.cost.collectives._library import Library
from foretell.cost.collectives._protocols import ALPHA_BETA

LIBRARY = Library(
    name="instant",
    summary="messages take no time: what is left is the ranks' own work",
    algorithms={},
    protocols=(ALPHA_BETA,),
    contends=False,
    free=True,
)
