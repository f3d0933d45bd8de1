"""Run against run (`traceviz compare`), and run after run (`traceviz history`).

Made here: `figures` (`steps`), `step_times`, `changes` and what is beyond noise (`noise`), `regions`, `gain`, `claim`.
"""
