"""Plain tables and figures rendered as HTML, Markdown, terminal output and plots; no domain logic."""
