"""Where the host waited, and what is not ordered (`traceviz syncs`).

Made here: `syncs` with `gpu_idle_ns` and `delayed` (`points`, `context`), `unwaited_copies` (`copies`),
`missing_waits` (`crossings`), `resting_on_host_syncs` (`rests`), `stream_plan` (`loops`).
"""
