"""Did A and B overlap, and is it enough: `check_overlap`, from what each part of a run says to the answer.

Made here: `verdict`, `passed`, `bar`, `reason` (`check`), `gain` (`gain`), and the `warnings` of an answer
(`warnings`).
"""
