"""Reward training: a model with a score for a head learns which of two answers was preferred."""

from foretell.oracle.phase import AlignmentMethod, AlignmentPhase

METHOD = AlignmentMethod(
    summary="pairs of answers, and a score for each: a reward model",
    references=(
        "Ouyang et al. 2022 (InstructGPT), arXiv 2203.02155, section 3.5",
        "TRL 1.16.0, trl/trainer/reward_trainer.py: AutoModelForSequenceClassification with one label",
    ),
    phases=(AlignmentPhase("train", "policy"),),
    rows=2,
    scores=True,
)
