"""Two rewards on one corpus: how often does each prefer how a task really went on to a corrupted version of it?

python examples/own_corpus.py && python examples/audit_two_rewards.py [PROCEDURES.jsonl]
"""

import sys

import recipe
from recipe.types import Step

TASKS = {
    "make pancakes": [
        "whisk flour, sugar and baking powder", "add eggs and milk", "grease a hot pan with butter",
        "pour in some batter", "flip it when there are bubbles", "serve with syrup",
    ],
    "change a tire": [
        "loosen the lug nuts", "jack up the car", "take the wheel off", "put the spare wheel on", "lower the car",
        "tighten the nuts",
    ],
    "repot a plant": [
        "take the plant out of its pot", "loosen the roots", "put soil into a larger pot",
        "set the plant in the middle", "fill up with soil", "water it",
    ],
    "make filled pancakes": [
        "mix flour, eggs and milk", "melt butter in a pan", "pour a thin layer of batter", "turn it over",
        "spread jam on it", "roll it up",
    ],
    "fit winter tires": [
        "loosen the nuts", "lift the car with a jack", "pull the wheel off", "put the winter tire on",
        "tighten the nuts", "lower the car",
    ],
}  # fmt: skip

procedures = sys.argv[1] if len(sys.argv) > 1 else [
    recipe.Procedure("mine", goal.replace(" ", "-"), goal, tuple(Step(text) for text in steps))
    for goal, steps in TASKS.items()
]  # fmt: skip
corpus = recipe.Corpus.open("corpora/examples")
small = {"pool_size": 4, "background_size": 4}  # a corpus of twelve videos
rewards = [recipe.RewardConfig(pool_size=4), recipe.RewardConfig(verifier="grounded", grounded=small)]
audit = recipe.audit_rewards(corpus, procedures, verifiers=rewards)
print(audit.answer)
for reward in audit.rewards:
    worst = f"worst class {reward.worst_class} {reward.worst.mean:.2f}"
    print(f"{reward.name:10}{reward.mean.mean:.2f} of comparisons, {worst}")
