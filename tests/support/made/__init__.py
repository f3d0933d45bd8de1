"""Captures in the layouts of vendors whose machines were not at hand, made by script: which ops run when is random.

`python -m tests.support.made` writes those in `tests/data`; tests make others by other seeds. Layouts follow the
profilers' source and public traces; times, names and sizes are made up. Nothing here is shared with the package.
"""
