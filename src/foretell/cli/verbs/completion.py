"""foretell completion: what teaches a shell to complete verbs and options."""

from __future__ import annotations

import os
from pathlib import Path

import click

from foretell.errors import BadInput

WHERE = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/completions/foretell.fish",
}


@click.command("completion", short_help="Shell completion.")
@click.argument("shell", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(shell: str | None, as_json: bool) -> None:
    """Print the completion script for SHELL (bash, zsh or fish; yours by default).

    \b
        foretell completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    from foretell.cli.command import cli

    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in WHERE:
        asked = repr(shell) if shell else "your shell"
        raise BadInput(f"no completion for {asked}", where="SHELL", fix=", ".join(WHERE))
    kind = get_completion_class(name)
    assert kind is not None
    source = kind(cli, {}, "foretell", "_FORETELL_COMPLETE").source_template % _words()
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"shell": name, "file": WHERE[name], "text": source}))
    else:
        click.echo(source)


def _words() -> dict[str, str]:
    return {"complete_func": "_foretell_completion", "complete_var": "_FORETELL_COMPLETE", "prog_name": "foretell"}
