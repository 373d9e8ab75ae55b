"""Parts of the model as lowering asks for them: the rules of plans ask for the same ones."""

from __future__ import annotations

from foretell.plan.parts import members

__all__ = ["members"]
