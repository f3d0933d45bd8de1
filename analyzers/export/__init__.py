"""The trace for other tools: Perfetto's JSON, Parquet, SQLite."""
