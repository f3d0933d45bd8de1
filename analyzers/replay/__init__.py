"""The captured program as a graph of tasks, run again: what did each thing wait for, and what if it did not?

Made here: everything that `traceviz what-if` prints.
"""
