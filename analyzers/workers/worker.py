"""What runs in a worker process: takes tasks from a pipe one by one, and answers with progress and results.

The other end is `analyzers.workers.pool`. Where that end is gone, the worker ends too, and so does what it had started.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import struct
import threading
import traceback
from types import FrameType
from typing import IO, Any

from analyzers.common.errors import TracevizError

LENGTH = struct.Struct("<Q")  # in front of every message
PROGRESS, DONE, REFUSED, BROKEN = "progress", "done", "refused", "broken"  # kinds of answers


def send(pipe: IO[bytes], message: object) -> None:
    """Write one message."""
    body = pickle.dumps(message, protocol=5)
    pipe.write(LENGTH.pack(len(body)) + body)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read one message.

    Raises
    ------
    EOFError : the other end is gone.
    """
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(head)
    body = pipe.read(length)
    if len(body) < length:
        raise EOFError
    return pickle.loads(body)


def main() -> None:
    """Work until the pipe is closed."""
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints must not land among the answers
    signal.signal(signal.SIGTERM, _end)  # as an exception: who is busy cleans up
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks, waiting), daemon=True).start()
    while (task := waiting.get()) is not None:
        function, arguments = task
        send(answers, _answer(function, arguments, answers))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Python's own end is no place for an exception


def _listen(tasks: IO[bytes], waiting: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            waiting.put(receive(tasks))
    except EOFError:
        waiting.put(None)
        os.kill(os.getpid(), signal.SIGTERM)


def _answer(function: Any, arguments: tuple[Any, ...], answers: IO[bytes]) -> tuple[str, Any]:
    def tell(what: str, done: int, total: int) -> None:
        send(answers, (PROGRESS, (done, total)))

    try:
        return DONE, function(*arguments, progress=tell)
    except TracevizError as error:
        return REFUSED, error
    except Exception:
        return BROKEN, traceback.format_exc()


def _end(signum: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: both the caller and its closed pipe may say so
    raise SystemExit(128 + signum)
