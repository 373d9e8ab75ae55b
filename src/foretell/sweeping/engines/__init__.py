"""Where cells are answered, one file each: it has `answers(cells, jobs)`, which yields them as they are done."""
