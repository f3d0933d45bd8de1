"""Programs before and after one fix, by the kind of the fix, and what they are timed and captured with.

Made here: tools/capture-pairs.py's machinery (machinery.py), and the programs of tools/capture-further-pairs.py.
"""
