"""Runs kept over time: `database` saves and reads them, `trends` judges the newest of each pair."""
