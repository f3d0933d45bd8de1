"""What a command can be asked: arguments and options, and what they come to."""
