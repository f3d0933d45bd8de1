"""Run against run (`traceviz compare`), and run after run (`traceviz history`).

Made here: `figures` and step times (`steps`), `changes` and what is beyond noise (`noise`), `regions`, `gain`, `claim`.
"""
