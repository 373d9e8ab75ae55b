"""`python -m foretell`."""

from foretell.cli import main

if __name__ == "__main__":  # not where it starts processes of its own
    main()
