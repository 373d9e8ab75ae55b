"""The taxonomy: on which axes systems of distributed training differ, and where each of them, a plan or a run lies.

categories.toml   the axes and their values (Langer et al. 2020; Ben-Nun and Hoefler 2019)
systems/          one TOML file a system, with its source; a preset where foretell can express it
classify.py       a plan, or an algorithm of virtual time, on the same axes
"""
