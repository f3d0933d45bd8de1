"""Structure-aware mutation of real captures, through every command: `python -m tests.fuzz --help`."""
