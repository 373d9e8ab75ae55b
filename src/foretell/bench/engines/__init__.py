"""Engines: one file each, with an `ENGINE`."""
