"""The verbs and what each one answers, in the order of the walk."""

VERBS = {
    "analyze": "What a model needs, and how far each dimension can be split.",
    "program": "What each rank computes, sends and holds under a plan.",
    "predict": "How long a step takes under a plan, and what memory a rank needs.",
    "list": "The names foretell knows.",
}
