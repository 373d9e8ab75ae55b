"""Ways to attend, one file each. A file has one name, `KERNEL`."""
