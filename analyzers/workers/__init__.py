"""Functions run in processes side by side. Knows no trace."""
