"""Training steps of a run: marked, inferred or given; which are whole on all ranks, and which time figures are of."""
