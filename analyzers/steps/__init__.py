"""Training steps: marked, inferred or given; which are whole on all ranks, and which time figures are of.

Made here: `steps` with `source`, `mark` and `marked` (`find`, by `candidates` and `choose`; steps are numbered
anew by `renumber`), `left_out`, `late_start` and the window that figures are of (`window`).
"""
