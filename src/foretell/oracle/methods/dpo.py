"""DPO: the policy is trained on pairs of answers, of which one was preferred, beside a reference."""

from foretell.oracle.phase import AlignmentMethod, AlignmentPhase

METHOD = AlignmentMethod(
    summary="pairs of a chosen and a rejected answer, against a frozen reference",
    references=(
        "Rafailov et al. 2023 (DPO), arXiv 2305.18290, equation 7: logarithms of both models on both answers",
        "TRL 1.16.0, trl/trainer/dpo_trainer.py: both answers in one batch, the reference under no_grad before",
    ),
    phases=(AlignmentPhase("forward", "reference"), AlignmentPhase("train", "policy")),
    rows=2,
)
