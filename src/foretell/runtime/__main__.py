"""`python -m foretell.runtime FOLDER [MODULE]`: the process that forks ranks (`runtime/fork_server.py`).

It ends with whoever started it from its first moment on, not only when torch is imported, which takes seconds.
"""

from foretell.processes import end_with_parent

if __name__ == "__main__":
    end_with_parent()

    from foretell.runtime.fork_server import main

    main()
