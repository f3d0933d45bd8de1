"""The pull-request attachment: `report` makes it, `files` writes it, `summary`, `gantt` and `page` are its parts."""
