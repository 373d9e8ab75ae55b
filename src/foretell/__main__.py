"""`python -m foretell`."""

import os
import sys

if __name__ == "__main__":  # not where it starts processes of its own
    here = sys.path[0]  # the folder that it is started in: a numpy.py that lies there is not numpy
    if not sys.flags.safe_path and os.sep.join((here, "foretell", "__main__.py")) != __file__:  # noqa: PTH118
        sys.path[:] = [folder for folder in sys.path if folder != here]
    from foretell.cli import main

    main()
