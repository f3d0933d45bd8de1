"""What rocprofv3 writes as JSON (`--output-format json`) of HIP programs and CSV: `read` makes a Trace."""
