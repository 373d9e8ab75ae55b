"""GRPO: groups of answers to each prompt, rewarded and compared with each other; no critic."""

from foretell.oracle.phase import AlignmentMethod, AlignmentPhase

METHOD = AlignmentMethod(
    summary="groups of answers to each prompt, compared with each other",
    references=(
        "Shao et al. 2024 (DeepSeekMath), arXiv 2402.03300, algorithm 1",
        "verl, verl/trainer/ppo/ray_trainer.py, old_log_prob: the trainer takes the policy's logarithms anew before it",
        "TRL 1.16.0, trl/trainer/grpo_trainer.py: no reference where beta, the weight of its penalty, is 0",
    ),
    phases=(
        AlignmentPhase("rollout", "policy", "rollouts"),
        AlignmentPhase("forward", "policy", "policy's logarithms"),
        AlignmentPhase("forward", "reference", optional=True),
        AlignmentPhase("forward", "reward", optional=True),
        AlignmentPhase("train", "policy", "update"),
    ),
)
