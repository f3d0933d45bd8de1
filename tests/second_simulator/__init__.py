"""A second, independent simulator: what would overlap without each obstacle, by running the program without it."""
