"""Why a plan earns what it earns: the evidence behind a reward, as records, sentences, JSON and a page."""
