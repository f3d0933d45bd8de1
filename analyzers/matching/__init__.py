"""Communication calls of several ranks matched into collectives.

Made here: `matched_by`, `confidence`, `sure` of a collective, and which calls are its.
"""
