"""The command line: one file a verb."""


def main() -> None: ...
