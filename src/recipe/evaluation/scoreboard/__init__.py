"""The evaluation report: what `recipe evaluate` measured of systems, beside the paper's tables, on one page."""
