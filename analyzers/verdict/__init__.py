"""Did A and B overlap, and is it enough: `check_overlap`, from the parts of a run to the answer.

Made here: `verdict`, `passed`, `bar`, `reason` (`check`), `gain` (`gain`), `bound` (`bound`), `profiler`
(`profiler`), and the `warnings` of an answer (`warnings`).
"""
