"""`python -m foretell`."""

import os
import sys

if __name__ == "__main__":  # not where it starts processes of its own
    if not sys.flags.safe_path and os.sep.join((sys.path[0], "foretell", "__main__.py")) != __file__:  # noqa: PTH118
        del sys.path[0]  # the folder that it is started in: a numpy.py that lies there is not numpy
    from foretell.cli import main

    main()
