"""Ways to join the units of a cluster, one file each. A file has one name, `TOPOLOGY`."""
