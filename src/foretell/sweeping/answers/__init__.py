"""What is done with each cell of a sweep, one file each: it has `answer(cell)` and says whether it `TAKES_PLANS`."""
