"""`python -m foretell`."""

from foretell.cli import main

main()
