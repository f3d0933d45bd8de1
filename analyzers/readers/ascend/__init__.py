"""What torch_npu's profiler writes of Ascend NPUs (`trace_view.json`): `format` tells it, `read` makes a Trace."""
