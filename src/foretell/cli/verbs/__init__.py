"""The verbs and what each one answers, in the order of the walk."""

VERBS = {
    "analyze": "What a model needs, and how far each dimension can be split.",
    "program": "What each rank computes, sends and holds under a plan.",
    "predict": "Step time, throughput, MFU and memory of a plan, and what limits it.",
    "fit": "Whether a model fits a cluster, with which plan, or what would fit.",
    "plan": "The plan to run, the fastest one, and one that saves memory.",
    "why": "Why a plan loses to the best one, change by change.",
    "diff": "Where two plans differ, and what each difference costs.",
    "scale": "Time, efficiency and memory over numbers of GPUs.",
    "whatif": "A step with better hardware, another batch or sequence length.",
    "sweep": "Many questions at once: models x clusters x batches x trainers.",
    "report": "One HTML file about a plan: time, memory, timeline, scaling.",
    "serve": "A page in the browser with sliders, and an HTTP API.",
    "export": "A plan as the configuration of a trainer, and the command that starts it.",
    "calibrate": "Measure this machine, for narrower predictions.",
    "profile": "Time the layers of a model on this device.",
    "run": "Train under a plan on real ranks, and measure.",
    "rehearse": "One rank of a large run for real on this machine, others as priced.",
    "bench": "Frameworks and strategies on the same task, by time to quality.",
    "lab": "Emulated hosts on this machine, with links of known rate and delay.",
    "compare": "Predicted against measured, for a run.",
    "goodput": "Goodput: the share of a run that failures and checkpoints leave.",
    "simulate": "How well training algorithms learn: real gradients in virtual time.",
    "advise": "Which technique to use on a cluster, and why.",
    "systems": "Published systems of distributed training, classified.",
    "results": "Kept records: list, filter, show, export.",
    "validate": "Predictions against published runs.",
    "check": "Whether kept predictions still hold, for continuous integration.",
    "doctor": "What is installed, what is missing, and how to get it.",
    "schema": "The JSON Schema of an answer.",
    "completion": "Shell completion.",
    "list": "Names: models, devices, clusters, strategies, trainers ...",
    "describe": "A page about any name, with sources.",
}

LEARNING = ("simulate", "advise", "systems", "bench")
"""Verbs about how methods learn and how systems are classified: help lists them apart."""
