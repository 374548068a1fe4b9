"""Pages of the reference, one module each; `page` gives the Markdown."""
