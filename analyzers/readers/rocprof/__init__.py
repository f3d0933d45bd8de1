"""What rocprofv3 writes as JSON (`--output-format json`) of HIP programs: `format` tells it, `read` makes a Trace."""
