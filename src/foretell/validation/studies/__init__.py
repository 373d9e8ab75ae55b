"""Families of measured files. One file each: `COLUMNS` recognise it, `rows` maps it."""
