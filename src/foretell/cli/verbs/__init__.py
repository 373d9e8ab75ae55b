"""The verbs and what each one answers, in the order of the walk."""

VERBS = {
    "analyze": "What a model needs, and how far each dimension can be split.",
    "program": "What each rank computes, sends and holds under a plan.",
    "predict": "How long a step takes under a plan, and what memory a rank needs.",
    "fit": "Whether a model fits a cluster, with which plan, and what would.",
    "plan": "The best plan there is, of all that are legal, and what comes close.",
    "validate": "How far predictions are from measured runs.",
    "list": "The names foretell knows.",
    "describe": "One page about anything that has a name.",
}
