"""PPO of language models: four models, of which the policy and a critic are trained."""

from foretell.oracle.phase import AlignmentMethod, AlignmentPhase

METHOD = AlignmentMethod(
    summary="answers scored by a reward model; a critic is trained beside the policy",
    references=(
        "Schulman et al. 2017 (PPO), arXiv 1707.06347",
        "Ouyang et al. 2022 (InstructGPT), arXiv 2203.02155, section 3.5: policy, reference, reward and critic",
        "OpenRLHF, openrlhf/trainer/ppo_trainer.py: forward passes of all four before the updates",
    ),
    phases=(
        AlignmentPhase("rollout", "policy", "rollouts"),
        AlignmentPhase("forward", "policy", "policy's logarithms"),
        AlignmentPhase("forward", "reference"),
        AlignmentPhase("forward", "reward"),
        AlignmentPhase("forward", "critic"),
        AlignmentPhase("train", "critic", "critic's update"),
        AlignmentPhase("train", "policy", "update"),
    ),
)
