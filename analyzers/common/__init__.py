"""What every subject needs and none owns: errors, progress, words for durations, cards for notebooks, whole files."""
