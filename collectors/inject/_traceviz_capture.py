"""Capture a window of steps of this process: with torch.profiler, or by telling nsys when to begin and end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import sys
import time

import torch
from _traceviz_ending import BeforeSigterm, abort_collectives
from _traceviz_hook import number_in, settings_of
from _traceviz_supervise import SESSION, stop


class StepTimes:
    """How long steps take just before the profiler begins, and while it captures: by the GPU's events, if there are."""

    MOST = 10  # steps before

    def __init__(self):
        self.marks = {}

    def mark(self, count):
        """So many steps are over now."""
        cuda = torch.cuda
        if cuda.is_available() and cuda.is_initialized() and not cuda.is_current_stream_capturing():
            self.marks[count] = cuda.Event(enable_timing=True)
            self.marks[count].record()
        else:
            self.marks[count] = time.perf_counter()

    def median_ms(self, begin, end):
        """Median time of the steps from `begin` up to, not including, `end`, ms; None where none was measured."""
        taken = [self.took_ms(self.marks.get(one), self.marks.get(one + 1)) for one in range(begin, end)]
        known = [one for one in taken if one is not None]
        return round(statistics.median(known), 4) if known else None

    @staticmethod
    def took_ms(begin, end):
        """From one mark to the next; None where the GPU has not come to them, or they are of two kinds."""
        if isinstance(begin, float) and isinstance(end, float):
            return (end - begin) * 1000
        if begin is None or end is None or isinstance(begin, float) or isinstance(end, float):
            return None
        try:
            return begin.elapsed_time(end) if begin.query() and end.query() else None
        except RuntimeError:  # an error of the program's GPU work comes up in whatever asks next
            return None


class Window:
    """Steps `first` up to, not including, `last` are wanted; what every way of capturing them has in common."""

    def __init__(self, settings, about):
        self.settings, self.about = settings, about
        self.first, self.last = settings["first"], settings["last"]
        self.running, self.reported, self.sigterm = False, False, None
        self.stop_counting, self.undo = lambda: None, []
        self.begin, self.times = None, StepTimes()

    def reached(self, count):
        """So many steps are over."""
        if not self.reported:
            self.reported = True
            self.about.report(state="waiting")
        try:
            if self.begin is not None and self.begin - StepTimes.MOST <= count <= self.last:
                self.times.mark(count)
            self.at(count)
        except Exception as error:  # the program goes on
            self.give_up(f"capturing failed: {error!r}")

    def step_ms(self):
        """How long a step takes without the profiler and with it."""
        before = self.times.median_ms(max(self.begin - StepTimes.MOST, 0), self.begin)
        return {"unprofiled": before, "profiled": self.times.median_ms(self.first, self.last)}

    def cut_off(self, count, why):
        """It ends before the window is over."""
        if self.first is None:
            self.about.report(state="captured", steps_seen=count)
        elif self.reported or number_in(self.settings["rank_variables"]) is not None:  # a launcher started it as a rank
            self.about.report(state="early", note=f"{why} after {count} steps", steps_seen=count)

    def give_up(self, why):
        """Capture no more of this program, and say why."""
        self.running = False
        self.about.report(state="failed", note=why)
        print(f"traceviz: rank {self.about.rank} is not captured: {why}.", file=sys.stderr)
        self.stop_counting()

    def forget(self):
        """In a forked child."""
        self.running = False
        if self.sigterm is not None:
            self.sigterm.restore()

    def claim(self):
        """Whether this process is the first of its rank to capture."""
        name = os.path.join(self.settings["folder"], f".claim-rank{self.about.rank}")
        try:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True


class TorchWindow(Window):
    """torch.profiler, warmed up before the window."""

    def __init__(self, settings, about):
        super().__init__(settings, about)
        self.begin = max(self.first - settings["warmup"], 0 if settings["step_range"] else 1)
        self.profile, self.ours, self.may_wait = None, False, True
        self.give_way()

    def at(self, count):
        """Begin, go on, or end."""
        if self.running:
            with self.sigterm.hold():
                self.profile.step()
                if not self.running:  # saved; what is left is the mark of a step that nobody wants
                    self.profile.stop()
        elif count == self.begin:
            self.start(count)

    def start(self, count):
        """Start the profiler, unless the program runs one itself."""
        if torch.autograd._profiler_enabled():
            return self.give_up("the program's own profiler is running; use its traces")
        if not self.claim():
            self.about.report(state="other", note="another process of this rank captures")
            return self.stop_counting()
        self.ours = True
        try:
            self.profile = self.new_profile()
            self.profile.step_num, self.profile.current_action = count, self.action(count)
            self.profile.start()
            # No trace of torch.profiler holds the environment.
            with contextlib.suppress(AttributeError, RuntimeError):
                self.profile.add_metadata_json("traceviz_settings", json.dumps(settings_of(self.settings)))
        finally:
            self.ours = False
        self.running = True
        self.sigterm = BeforeSigterm(lambda: self.save_now("SIGTERM ended it", waiting=False), abort_collectives)
        self.about.report(state="capturing", steps=[self.first, self.last])
        return None

    def new_profile(self):
        """The profiler as asked for."""
        from torch.profiler import ProfilerActivity, profile

        more = {}
        with contextlib.suppress(AttributeError, TypeError):  # torch before 2.1
            more["experimental_config"] = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
        return profile(
            activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available(),
            schedule=self.action,
            on_trace_ready=self.save,
            record_shapes=self.settings["shapes"],
            with_stack=self.settings["stacks"],
            profile_memory=self.settings["memory"],
            **more,
        )

    def action(self, step):
        """What the profiler does in a step."""
        from torch.profiler import ProfilerAction

        if step < self.first:
            return ProfilerAction.WARMUP if step >= self.begin else ProfilerAction.NONE
        if step < self.last:
            return ProfilerAction.RECORD if step < self.last - 1 else ProfilerAction.RECORD_AND_SAVE
        return ProfilerAction.NONE

    def save(self, profile):
        """Write the trace; one that is there is whole, whatever ends the program."""
        path = os.path.join(self.settings["folder"], f"rank{self.about.rank}.json.gz")
        partial = os.path.join(self.settings["folder"], f".partial-rank{self.about.rank}.json.gz")
        over = self.profile.step_num
        try:
            profile.export_chrome_trace(partial)
            os.replace(partial, path)
            # Even asking for an event waits where another thread holds the driver, blocked by a full launch queue.
            step_ms = self.step_ms() if self.may_wait else None
            self.about.report(state="captured", steps=[self.first, min(over, self.last)], step_ms=step_ms)
        except Exception as error:  # a full disk above all
            with contextlib.suppress(OSError):
                os.unlink(partial)
            self.about.report(state="failed", note=f"the trace can't be written: {error}")
            print(f"traceviz: rank {self.about.rank}'s trace can't be written: {error}", file=sys.stderr)
        self.running = False
        self.sigterm.restore()
        self.stop_counting()

    def save_now(self, why, waiting=True):
        """Write what there is; `waiting` False leaves work that may hang on a dead peer behind."""
        if not self.running:
            return
        over = self.profile.step_num
        if over > self.first or (over == self.first and self.settings["first"] == self.begin):
            self.may_wait = waiting
            if not waiting and getattr(self.profile, "profiler", None) is not None:
                self.profile.profiler.use_device = None  # no synchronize, which would never return
            with self.sigterm.hold():
                self.profile.stop()
                self.about.report(note=f"{why} in step {over}; the window was to end before step {self.last}")
        else:
            self.running = False
            self.about.report(state="early", note=f"{why} in step {over}, before the window began")

    def cut_off(self, count, why):
        """The program ends inside the window, or before it."""
        if self.running:
            self.save_now(why)
        else:
            super().cut_off(count, why)

    def give_way(self):
        """Let a profiler that the program starts run: torch has room for one only."""
        from torch.autograd.profiler import profile

        construct = profile.__init__

        def init(this, *args, **kwargs):
            if self.running and not self.ours:
                self.step_aside()
            construct(this, *args, **kwargs)

        profile.__init__ = init
        self.undo.append(lambda: setattr(profile, "__init__", construct))

    def step_aside(self):
        """The program starts a profiler of its own."""
        self.save_now("the program began its own profiler")
        if self.about.facts.get("state") != "captured":
            self.give_up("the program profiles itself; use its traces")


class NsysWindow(Window):
    """nsys, which captures between cudaProfilerStart and cudaProfilerStop; steps are marked as NVTX ranges."""

    def __init__(self, settings, about):
        super().__init__(settings, about)
        self.mark = None
        # nsys takes seconds to begin, and the host has lost its lead over the GPU then: one step more, before the first
        self.begin = None if self.first is None else max(self.first - 1, 0)

    def at(self, count):
        """Begin or end the capture, and mark the step that begins."""
        self.end_mark()
        if self.sigterm is None and (self.first is None or count == self.begin):
            self.sigterm = BeforeSigterm(self.hand_over, self.hand_over_blocked)
        if self.first is None:
            return self.begin_mark(count)
        if count == self.begin:
            torch.cuda.profiler.start()
            self.running = True
            self.about.report(state="capturing", steps=[self.first, self.last])
        if count >= self.last and self.running:
            return self.stop()
        return self.begin_mark(count) if self.running else None

    def stop(self):
        """End the capture; in a report over several ranks only when the last of them is through."""
        torch.cuda.synchronize()
        self.running = False
        self.about.report(state="captured", steps=[self.first, self.last], step_ms=self.step_ms())
        if not self.settings["shared"] or self.is_last():
            torch.cuda.profiler.stop()
        self.sigterm.restore()
        self.stop_counting()

    def hand_over(self):
        """Let nsys take the GPU's events out of this process, which ends and would take them along."""
        if session := os.environ.get(SESSION):
            stop(self.settings["nsys"], session)

    def hand_over_blocked(self):
        """Likewise where the main thread waits for the GPU: no Python would end this process."""
        self.hand_over()
        os.kill(os.getpid(), signal.SIGKILL)

    def is_last(self):
        """Whether every other rank has ended its steps: each leaves a byte, and who writes the last one is last."""
        path = os.path.join(self.settings["folder"], ".ended")
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, b".")
            return os.fstat(file).st_size >= int(self.about.itself()["world_size"])
        finally:
            os.close(file)

    def begin_mark(self, count):
        """Mark a step on the timeline; where the program marks its own, that is enough."""
        if not self.settings["step_range"]:
            with contextlib.suppress(RuntimeError, AttributeError):  # torch without CUDA
                self.mark = torch.cuda.nvtx.range_start(f"step {count}")

    def end_mark(self):
        """The step is over."""
        if self.mark is not None:
            torch.cuda.nvtx.range_end(self.mark)
            self.mark = None
