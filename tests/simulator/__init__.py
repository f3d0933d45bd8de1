"""Programs of known truth on a small simulated machine, and the captures that profilers would make of them.

`program` says what hosts do, and `script` writes it; `order` works out what comes before what, what the data need of
that, and what races; `machine` runs a program on hosts, streams and GPUs, and may leave a constraint out; `truth`
names what each op waited for and what its removal gains; `nsys` and `kineto` write captures, of what `recorded` says
that a profiler sees. `generate` draws programs for most tests, right by construction; `replays` draws those before and
after a change, `jobs` those of several hosts, `unmarked` training loops without step marks, and `flows` programs of
which it is known what each op reads and writes: `flow_changes` says what changes do to that. Nothing of the package is
used but what is under test, and its selectors' grammar.
"""
