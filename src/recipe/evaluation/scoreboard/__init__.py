"""The evaluation report: the scores of systems by `recipe evaluate`, with the paper's tables, on one page."""
