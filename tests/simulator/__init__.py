"""Programs of known truth on a small simulated machine, and the captures that profilers would make of them.

`program` says what hosts do; `machine` runs it on hosts, streams and GPUs, and may leave a constraint out; `truth`
names what each op waited for and what its removal gains; `nsys` and `kineto` write captures; `generate` draws programs;
`measure` counts how often the package is right: `python -m tests.simulator`. `flows` draws programs whose ops read and
write known data, `flow_changes` says what changes do to that, `dataflow` counts what is named that breaks it. Shares no
code with the package.
"""
