"""Measure this machine: its kernels, host, allocator and links, as samples for `cost/calibrated`."""
