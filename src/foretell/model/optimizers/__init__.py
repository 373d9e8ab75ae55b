"""The optimizers: one file each, with all that is known of it. A file has one name, `OPTIMIZER`."""
