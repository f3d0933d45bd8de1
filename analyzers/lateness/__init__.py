"""What makes one rank come later than the others: host work of its own."""
