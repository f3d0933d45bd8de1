"""Selectors ("nvtx:forward+!comm"): their language, the ops one picks, and why one picks none.

Made here: the ops of each side (`ops`, `streams`), and the `reason` of a side that has none.
"""
