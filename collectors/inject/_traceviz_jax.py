"""Capture a window of steps of this process with jax.profiler, or its whole run. Loaded once `jax` is imported.

A step is a `jax.profiler.StepTraceAnnotation`, or a TraceAnnotation of the name that was asked for. The profiler begins
once the program has a backend: before, `jax.distributed.initialize` would come too late.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import os
import re
import shutil
import sys
import threading

import jax
from _traceviz_hook import number_in, settings_of, write_about

KINDS = ("trace.json.gz", "xplane.pb")


def watch(settings):
    """Count steps, or wait for a backend, and capture."""
    window = Window(settings)
    if settings["first"] is None:
        window.begin_with_backend()
    else:
        watch_annotations(settings["step_range"], window)
    window.give_way()
    atexit.register(window.end, "the program ended")
    os.register_at_fork(after_in_child=window.forget)


class Window:
    """Steps `first` up to, not including, `last` are wanted; all of the run where they are None."""

    def __init__(self, settings):
        self.settings, self.first, self.last = settings, settings["first"], settings["last"]
        self.count, self.on, self.running, self.thread = 0, True, False, None
        self.start_trace, self.stop_trace = jax.profiler.start_trace, jax.profiler.stop_trace
        self.facts = {"state": "waiting"}

    def report(self, **what):
        """Write what is known now."""
        facts = {"rank": self.rank(), "world_size": 1, "jax": jax.__version__, "settings": settings_of(self.settings)}
        with contextlib.suppress(Exception):  # before there is a backend
            if self.running or self.facts["state"] == "captured":
                facts["world_size"] = jax.process_count()
        self.facts = {**self.facts, **facts, **what}
        write_about(self.settings["folder"], self.facts)

    def rank(self):
        """The number of this process: as JAX knows it once it captures, else as it was started."""
        if self.running and jax.process_count() > 1:
            return jax.process_index()
        return number_in(self.settings["rank_variables"]) or 0

    def begins(self):
        """A step begins."""
        if self.on and self.thread in (None, threading.get_ident()):
            self.thread = threading.get_ident()
            if not self.running and self.count == self.first:
                self.begin()

    def over(self):
        """A step is over."""
        if self.on and self.thread == threading.get_ident():
            self.count += 1
            if self.running and self.count == self.last:
                self.end("")

    def begin_with_backend(self):
        """Begin as soon as the program has a backend."""
        from jax._src import xla_bridge

        get = xla_bridge.get_backend

        def get_backend(*args, **kwargs):
            found = get(*args, **kwargs)
            if self.on and not self.running:
                xla_bridge.get_backend = get
                self.begin()
            return found

        xla_bridge.get_backend = get_backend

    def begin(self):
        """Start the profiler."""
        self.scratch = os.path.join(self.settings["folder"], f".profile-{os.getpid()}")
        try:
            self.start_trace(self.scratch)
        except Exception as error:  # the program runs one itself
            self.on = False
            return self.report(state="failed", note=f"jax.profiler does not start: {error}")
        self.running = True
        self.report(state="capturing", steps=None if self.first is None else [self.first, self.last])
        return None

    def end(self, why):
        """Stop the profiler, once the devices are done, and keep what it wrote."""
        if not self.on:
            return
        self.on = False
        if not self.running:
            where = f"after {self.count} steps" if self.first is not None else "before it had a backend"
            self.report(state="early", note=f"{why} {where}")
            return
        rank = self.rank()
        try:
            for device in jax.local_devices():
                (jax.device_put(0, device) + 0).block_until_ready()
            self.stop_trace()
            self.keep(rank)
            more = {"note": f"{why} in step {self.count}"} if self.first is not None and why else {}
            self.report(state="captured", **more)
        except Exception as error:  # a full disk above all
            self.report(state="failed", note=f"the profile can't be written: {error}")
            print(f"traceviz: rank {rank}'s profile can't be written: {error}", file=sys.stderr)
        self.running = False
        shutil.rmtree(self.scratch, ignore_errors=True)

    def keep(self, rank):
        """Give the files of the profile the rank's name."""
        place = os.path.join(glob.escape(self.scratch), "plugins", "profile", "*")
        found = {kind: path for kind in KINDS for path in glob.glob(os.path.join(place, f"*.{kind}"))}
        if not found:
            raise FileNotFoundError("jax.profiler wrote none")
        for kind, path in found.items():  # XLA may write no JSON, as where the space is too large for it
            os.replace(path, os.path.join(self.settings["folder"], f"rank{rank}.{kind}"))

    def give_way(self):
        """Let a profile that the program starts itself run: JAX has room for one only."""

        def start_trace(*args, **kwargs):
            self.end("the program began its own profile")
            return self.start_trace(*args, **kwargs)

        jax.profiler.start_trace = start_trace

    def forget(self):
        """In a forked child."""
        self.on = False


def watch_annotations(name, window):
    """Let annotations tell: those of a name, "step 12" is one of "step"; without a name those that are steps."""
    is_step = re.compile(re.escape(name) + r"(?:[ _#:]*\d+)?").fullmatch if name else None

    def counting(kind, always):
        class Annotation(kind):
            def __init__(self, text, *args, **kwargs):
                self.is_step = bool(is_step(text)) if is_step else always
                if self.is_step:  # JAX begins to trace it as it is made, not as it is entered
                    window.begins()
                super().__init__(text, *args, **kwargs)

            def __exit__(self, *error):
                result = super().__exit__(*error)
                if self.is_step:
                    window.over()
                return result

        Annotation.__name__ = Annotation.__qualname__ = kind.__name__
        return Annotation

    profiler = jax.profiler
    profiler.StepTraceAnnotation = counting(profiler.StepTraceAnnotation, True)
    if name:
        profiler.TraceAnnotation = counting(profiler.TraceAnnotation, False)
