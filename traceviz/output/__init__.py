"""Results as text, Markdown and JSON: `views` and `contract` say what, `terminal`, `printed` and `document` how."""
