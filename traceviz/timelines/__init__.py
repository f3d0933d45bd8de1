"""Aligned timelines: `picture` works out the numbers, `draw` the figure, `page` and `images` the files."""
