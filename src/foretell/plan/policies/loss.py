"""Loss: how logits and their loss are made together, without all logits at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.model.heads import heads
from foretell.plan.facts import facts
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.syntax import Option, WordChoice

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Loss(Policy, frozen=True, kw_only=True, tag="loss"):
    """How the product that makes logits and the cross-entropy after it run. What is usual is the trainer's.

    chunks  a piece of the rows at a time: logits of a piece, their loss, their gradient over them, and from it the
            gradients of the hidden state and of the weight, before the next piece takes their memory; nothing runs
            again
    """

    word: ClassVar[str] = "loss"
    place: ClassVar[int] = 98
    searched: ClassVar[bool] = False  # a kernel that a trainer has or has not
    summary: ClassVar[str] = "make logits and their loss a piece of the rows at a time"
    references: ClassVar[tuple[str, ...]] = (
        "Hsu et al. 2024 (Liger Kernel), arXiv 2410.10989, section 3.2: FusedLinearCrossEntropy",
        "Liger-Kernel (00eba63), src/liger_kernel/ops/fused_linear_cross_entropy.py",
    )
    syntax: ClassVar[tuple[Option, ...]] = (WordChoice("form", {"chunks": "chunks"}),)
    example: ClassVar[str] = "+loss:chunks"

    form: str = ""  # as the trainer does

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        if not self.form or not facts(setting.graph).trains:  # plan/forward.py
            return
        tensor = setting.plan.axis(Tensor)
        if tensor is not None and tensor.ranks > 1:
            why = f"+loss:chunks multiplies with the whole head, and tp{tensor.ranks} divides it"
        elif not any(heads(block) for block in setting.graph.blocks):
            why = f"+loss:chunks joins a cross-entropy with the product it reads: {setting.graph.name} has none"
        else:
            return
        yield Refusal("loss in chunks", why, mends=changed(setting.plan, Loss()))
