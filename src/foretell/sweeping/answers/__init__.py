"""What is done with each cell of a sweep, one file each: it has `answer(cell)` and says whether it `TAKES_PLANS`.

One that is `ALONE` measures this machine: its cells are answered one after the other, whatever number of jobs.
"""
