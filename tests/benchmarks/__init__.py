"""Benchmarks: what is measured runs as it does for users, whose modules Python compiles once and keeps."""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
