"""The charts: one file each, from answers to a `Chart`."""
