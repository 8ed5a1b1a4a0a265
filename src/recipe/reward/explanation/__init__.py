"""Why a plan earns what it earns: the evidence behind a reward, in records, words, links and JSON."""
