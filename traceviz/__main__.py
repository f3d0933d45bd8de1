"""`python -m traceviz`."""

from traceviz.cli import main

main()
