"""The paper's tables by one command: regimes and scales from TOML, runs that resume, tables beside the paper's."""
