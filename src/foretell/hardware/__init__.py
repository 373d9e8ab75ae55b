"""WHERE a plan runs: devices, links and levels, in SI units, with a source beside each figure.

quantity    "80 GB", "312 Tflop/s", "4.5 us": text with units to SI numbers
cluster     the values: Device, Link, Level, Cluster
table       one table of a TOML file, strictly
reading     TOML files to these values, strictly
members     the files that ship: devices/ links/ clusters/, and other spellings of their names
catalog     `cluster("64xh100")`: what a person writes after --on
"""
