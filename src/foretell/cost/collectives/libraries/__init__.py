"""Communication libraries, one file each: which algorithms and protocols it has, and how its messages behave.

A file has one name, `LIBRARY`. A cluster names its library (`library = "nccl"` of its file); one that does not gets
what its devices usually have.
"""
