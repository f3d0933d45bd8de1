"""Count a training program's steps from outside, and capture those asked for. Loaded once `torch` is imported.

A step ends when the optimizer that stepped first has stepped again, or when the range asked for ends. Until the
window begins and after it is over, this costs one Python call a step.
"""

from __future__ import annotations

import atexit
import os
import re
import threading

import torch
from _traceviz_hook import number_in, settings_of, write_about

WORLD_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")


def watch(settings, capture):
    """Count steps, and hand each boundary to the module that captures."""
    kind = capture.TorchWindow if settings["tool"] == "torch" else capture.NsysWindow
    window = kind(settings, About(settings))
    steps = Steps(window)
    steps.undo += window.undo
    if settings["step_range"]:
        watch_ranges(settings["step_range"], steps)
    else:
        watch_optimizers(steps)
    window.stop_counting = steps.stop
    atexit.register(steps.end)
    os.register_at_fork(after_in_child=steps.forget)


class Steps:
    """How many steps are over, in the thread that makes them."""

    def __init__(self, window):
        self.window, self.count, self.on, self.undo = window, 0, True, []
        self.thread = None

    def begins(self):
        """A range that is a step begins."""
        if self.on and self.count == 0 and self.thread is None:
            self.thread = threading.get_ident()
            self.window.reached(0)

    def over(self):
        """One more step is over."""
        if self.on and self.thread in (None, threading.get_ident()):
            self.thread = threading.get_ident()
            self.count += 1
            self.window.reached(self.count)

    def stop(self):
        """Leave the program as it was."""
        self.on = False
        for undo in self.undo:
            undo()
        self.undo.clear()

    def end(self):
        """The program ends."""
        if self.on:
            self.on = False
            self.window.cut_off(self.count, "the program ended")

    def forget(self):
        """In a forked child: it is no rank, and what its parent captures is not its to write."""
        self.on = False
        self.window.forget()


def watch_optimizers(steps):
    """Let every optimizer's step tell; the one that stepped first counts, until it falls out of use."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    counting, others = [None], [0]

    def after_step(optimizer, args, kwargs):
        me = id(optimizer)
        if counting[0] is None or others[0] > 100:
            counting[0] = me
        if counting[0] == me:
            others[0] = 0
            steps.over()
        else:
            others[0] += 1

    after_step._torchdynamo_disable = True  # not to be compiled into the program's own graphs
    handle = register_optimizer_step_post_hook(after_step)
    steps.undo.append(handle.remove)


def watch_ranges(name, steps):
    """Let `record_function` and NVTX ranges of a name tell; "step 12" is one of "step"."""
    is_step = re.compile(re.escape(name) + r"(?:[ _#:]*\d+)?").fullmatch
    record, nvtx, open_ranges = torch.autograd.profiler.record_function, torch.cuda.nvtx, []
    enter, leave, push, pop = record.__enter__, record.__exit__, nvtx.range_push, nvtx.range_pop
    outer = threading.local()

    def entering(text):
        mine = isinstance(text, str) and bool(is_step(text)) and not getattr(outer, "inside", 0)
        if mine:
            steps.begins()
        return mine

    def record_enter(self):
        self._traceviz_step = entering(self.name)
        outer.inside = getattr(outer, "inside", 0) + self._traceviz_step
        return enter(self)

    def record_exit(self, *error):
        result = leave(self, *error)
        if getattr(self, "_traceviz_step", False):
            outer.inside -= 1
            steps.over()
        return result

    def range_push(message):
        open_ranges.append(entering(message))
        outer.inside = getattr(outer, "inside", 0) + open_ranges[-1]
        return push(message)

    def range_pop():
        result = pop()
        if open_ranges and open_ranges.pop():
            outer.inside -= 1
            steps.over()
        return result

    record.__enter__, record.__exit__, nvtx.range_push, nvtx.range_pop = (
        record_enter,
        record_exit,
        range_push,
        range_pop,
    )

    def undo():
        record.__enter__, record.__exit__, nvtx.range_push, nvtx.range_pop = enter, leave, push, pop

    steps.undo.append(undo)


class About:
    """What this process tells the collector of itself, in a file beside the captures."""

    def __init__(self, settings):
        self.settings, self.facts = settings, {"world_size": 1}

    @property
    def rank(self):
        """The rank of this process: as torch.distributed knows it, else as it was started."""
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank()
        return number_in(self.settings["rank_variables"]) or 0

    def report(self, **what):
        """Write what is known now; the collector reads it when the program is over."""
        self.facts.update(what)
        self.facts.update(self.itself())
        write_about(self.settings["folder"], self.facts)

    def stated(self):
        """How many ranks there are, by the launcher's variables: srun's also stand around a single process."""
        names = [
            name for name in WORLD_SIZES if name != "SLURM_NTASKS" or "SLURM_PROCID" in self.settings["rank_variables"]
        ]
        return number_in(names) or 1

    def itself(self):
        """Rank, versions and GPU of this process."""
        distributed, cuda = torch.distributed, torch.cuda
        started = distributed.is_available() and distributed.is_initialized()
        facts = {"torch": str(torch.__version__), "cuda": torch.version.cuda, "rank": self.rank}
        facts["world_size"] = max(distributed.get_world_size() if started else self.stated(), self.facts["world_size"])
        facts["backend"] = str(distributed.get_backend()) if started else None
        facts["settings"] = settings_of(self.settings)
        if cuda.is_available() and cuda.is_initialized():
            facts["gpu"] = cuda.get_device_name()
            version = cuda.nccl.version()
            facts["nccl"] = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
        return facts
