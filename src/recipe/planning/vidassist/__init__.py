"""VidAssist: propose, assess and search for the next actions of a task (paper, appendix "VidAssist integration").

A reconstruction: no official code was available. What is known of VidAssist (arXiv 2409.20557): an LLM proposes next
actions from the goal, the history and the partial plan; they are mapped to the admissible actions; value functions
assess them (likelihood of the proposal, similarity of the mapping, the LLM's opinion of the partial plan, and with few
examples a task graph); a breadth-first search keeps the best partial plans. Of RECIPE's variant: two candidates each
from the original proposer and from RECIPE at each step, one assessor, the best is appended.

Ours are: the prompts (`prompts/`), temperatures and lengths, the scale of each value function and their equal weights,
that likelihoods are those of the model that proposed, that candidates which map to one action are one with the highest
scores of them, the width of the beam, and how ties are settled.

`search` holds the search and the value functions that ask no model, `methods` the prompts, what asks models and the
three methods, and `trace` keeps why each action was chosen.
"""
