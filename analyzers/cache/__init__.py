"""The folder in which captures that were read are kept, as Arrow files. `traceviz cache` lists it."""
