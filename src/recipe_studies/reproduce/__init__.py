"""The paper's tables by one command: regimes and scales from TOML, runs that resume, tables next to the paper's."""
