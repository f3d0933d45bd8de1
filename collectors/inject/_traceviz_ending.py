"""What a process under capture still does when SIGTERM ends it, also where its GPU waits for a peer that has died.

A collective whose peer is gone spins on the GPU for ever, and a host that waits for it runs no more Python. For
torch.profiler, which writes in the main thread, aborting NCCL's communicators ends both; a process that is about to
end needs them no more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import torch

IDLE_SECONDS = 2.0  # in which a host that no dead peer blocks answers


class BeforeSigterm:
    """Runs a function before SIGTERM ends this process; where something is being written, after that is done.

    Only where the program leaves the signal to the system. Where the host is blocked in a CUDA call, `blocked` is run
    in a thread: it frees the host, or ends the process itself.
    """

    def __init__(self, then, blocked):
        self.then, self.blocked, self.held, self.came = then, blocked, False, False
        self.heard, self.wakeup = threading.Event(), None
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self.handle)
            self.watch()

    def watch(self):
        """Let a thread hear of the signal, too: Python's handlers wait for the main thread."""
        inbox, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        before = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        if before != -1:  # the program's own, as asyncio has one
            signal.set_wakeup_fd(before)
            os.close(wakeup)
            os.close(inbox)
            return
        self.wakeup = wakeup
        threading.Thread(target=self.listen, args=(inbox,), daemon=True, name="traceviz").start()

    def listen(self, inbox):
        """Act where SIGTERM came and the main thread does not answer."""
        with open(inbox, "rb", buffering=0) as numbers:
            while number := numbers.read(1):
                if number[0] == signal.SIGTERM and not self.heard.wait(IDLE_SECONDS):
                    self.blocked()

    def handle(self, number, frame):
        """The signal is there."""
        self.heard.set()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # told twice, it would end while it writes
        if self.held:
            self.came = True
        else:
            self.end()

    def end(self):
        """End as the signal would have."""
        try:
            self.then()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    @contextlib.contextmanager
    def hold(self):
        """Let what is done inside be finished first."""
        if self.held:
            yield
            return
        self.held = True
        try:
            yield
        finally:
            self.held = False
            if self.came:
                self.end()

    def restore(self):
        """Leave the signal to the system again."""
        if signal.getsignal(signal.SIGTERM) == self.handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self.wakeup is not None:
            now = signal.set_wakeup_fd(-1)
            if now != self.wakeup:  # the program has set one of its own since
                signal.set_wakeup_fd(now)
            os.close(self.wakeup)
            self.wakeup = None


def abort_collectives():
    """Abort NCCL's communicators, whose kernels then end; torch before 2.6 can't."""
    distributed = torch.distributed
    abort = getattr(getattr(distributed, "distributed_c10d", None), "_abort_process_group", None)
    if abort is not None and distributed.is_initialized():
        with contextlib.suppress(Exception):
            abort()
