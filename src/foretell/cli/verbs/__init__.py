"""The verbs and what each one answers, in the order of the walk."""

VERBS = {
    "analyze": "What a model needs, and how far each dimension can be split.",
    "predict": "How long a step takes under a plan, and what memory a rank needs.",
    "list": "The names foretell knows.",
}
