"""The verbs and what each one answers, in the order of the walk."""

VERBS = {
    "analyze": "What a model needs, and how far each dimension can be split.",
    "list": "The names foretell knows.",
}
