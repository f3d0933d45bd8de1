"""One finding by its id: a gap, an instance, a sync or a collective, with its evidence and its window of time."""
