"""What makes one rank come later than the others. Made here: host work of a rank's own (`own_work`)."""
