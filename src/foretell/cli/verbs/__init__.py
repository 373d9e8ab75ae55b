"""The verbs and what each one answers, in the order of the walk."""

VERBS = {
    "analyze": "What a model needs, and how far each dimension can be split.",
    "program": "What each rank computes, sends and holds under a plan.",
    "predict": "How long a step takes under a plan, and what memory a rank needs.",
    "fit": "Whether a model fits a cluster, with which plan, and what would.",
    "plan": "The best plan there is, of all that are legal, and what comes close.",
    "why": "Why a plan loses to the best one, step by step, and what would make it win.",
    "diff": "Where two plans differ, and what each difference costs.",
    "scale": "Time, efficiency and memory of each strategy over numbers of GPUs.",
    "whatif": "What other hardware, batches and sequences would do to a step.",
    "sweep": "Many questions at once: models x clusters x batches x trainers.",
    "calibrate": "Measure this machine, so that predictions rest on it.",
    "profile": "Time the layers of a model on this device.",
    "run": "Train under a plan for real, on ranks of this machine or of many, and measure.",
    "compare": "What was predicted for a run, and what was measured.",
    "simulate": "How well algorithms learn on a cluster: real gradients in virtual time.",
    "systems": "Systems of distributed training, by the axes of the taxonomy.",
    "results": "The records that are kept: listed, filtered, shown and exported.",
    "validate": "How far predictions are from measured runs.",
    "list": "The names foretell knows.",
    "describe": "One page about anything that has a name.",
}
