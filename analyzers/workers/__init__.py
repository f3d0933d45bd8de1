"""Functions called with many tasks by processes side by side: on this machine (`local`) or a Dask cluster's (`dask`).

Knows nothing of traces.
"""
