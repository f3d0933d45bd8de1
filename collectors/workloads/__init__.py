"""The situations that reviews argue about, as small programs with real work; `catalog` lists them."""
