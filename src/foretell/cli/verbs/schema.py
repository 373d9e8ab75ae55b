"""foretell schema: the form of a verb's answer, for programs in any language."""

from __future__ import annotations

import click

from foretell.errors import unknown


@click.command("schema", short_help="The JSON Schema of a verb's answer.")
@click.argument("answer", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object; without ANSWER all of them.")
def command(answer: str | None, as_json: bool) -> None:
    """The JSON Schema of what a verb prints with --json; without ANSWER their list.

    \b
        foretell schema predict
        foretell schema 'plan --batch auto'

    An answer with exit code 2 has the form of `foretell schema error`.
    """
    import msgspec

    from foretell.cli.answers import FORMS, TYPES, FailureAnswer
    from foretell.cli.table import table

    types = {"error": FailureAnswer, **TYPES}
    if answer is not None:
        if answer not in types:
            raise unknown("answer", answer, types)
        click.echo(msgspec.json.format(msgspec.json.encode(msgspec.json.schema(types[answer])), indent=2))
    elif as_json:
        click.echo(msgspec.json.encode({name: msgspec.json.schema(one) for name, one in types.items()}))
    else:
        click.echo(table(["answer", "what it is"], [[form.command, form.says] for form in FORMS], left=(0, 1)))
