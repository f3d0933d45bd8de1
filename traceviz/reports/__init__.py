"""The pull-request attachment: `files` makes and writes it, `summary`, `gantt` and `page` are its parts."""
