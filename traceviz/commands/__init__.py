"""Commands: each parses, loads, computes and renders, and does none of that itself."""
