"""Runs whose captures are looked at one by one, on this machine or on a Dask cluster, in the memory allowed."""
