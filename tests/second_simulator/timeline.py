"""One rank's step in numbers, to be looked at by hand."""

from __future__ import annotations

from tests.second_simulator.machine import Run


def timeline(run: Run, rank: int, step: int) -> str:
    """A line a call, in µs from the step's begin: when the host made it, and when its op ran."""
    calls = [ran for ran in run.calls if ran.rank == rank and ran.call.step == step]
    origin = calls[0].begin
    lines = []
    for ran in calls:
        call = ran.call
        what = " ".join(word for word in (call.does, call.op.name if call.op else "", call.text, call.site) if word)
        text = f"{(ran.begin - origin) / 1e3:9.1f} … {(ran.end - origin) / 1e3:9.1f}  {call.side or '-'}  {what}"
        if call.stream:
            text += f" [stream {call.stream}{f', event {call.event}' if call.event >= 0 else ''}]"
        if call.op and ran.node:
            node = ran.node
            waited = (
                f" (waits until {(node.last_arrival - origin) / 1e3:.1f})" if node.last_arrival > node.start else ""
            )
            text += f"  → {(node.start - origin) / 1e3:.1f} … {(node.end - origin) / 1e3:.1f}{waited}"
        lines.append(text)
    return "\n".join(lines)
