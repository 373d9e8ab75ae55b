"""PPO of language models: four models, of which the policy and a critic are trained."""

from foretell.oracle.phase import Method, Phase

METHOD = Method(
    summary="answers scored by a reward model; a critic is trained beside the policy",
    references=(
        "Schulman et al. 2017 (PPO), arXiv 1707.06347",
        "Ouyang et al. 2022 (InstructGPT), arXiv 2203.02155, section 3.5: policy, reference, reward and critic",
        "OpenRLHF, openrlhf/trainer/ppo_trainer.py: forward passes of all four before the updates",
    ),
    phases=(
        Phase("rollout", "policy", "rollouts"),
        Phase("forward", "policy", "policy's logarithms"),
        Phase("forward", "reference"),
        Phase("forward", "reward"),
        Phase("forward", "critic"),
        Phase("train", "critic", "critic's update"),
        Phase("train", "policy", "update"),
    ),
)
