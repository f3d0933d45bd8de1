"""Results as blocks of a document: what a reader sees first, and in which words."""
