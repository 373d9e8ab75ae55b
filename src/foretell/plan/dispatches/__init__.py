"""The open set of ways in which rows reach their experts: one file each, named by its word."""
