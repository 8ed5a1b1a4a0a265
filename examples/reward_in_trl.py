"""The reward in TRL's GRPOTrainer, beside a reward of your own.

    recipe reward serve --corpus corpora/examples &          # in any environment
    RECIPE_SERVICE=http://127.0.0.1:8000 python examples/reward_in_trl.py [MODEL]

With RECIPE_CORPUS=corpora/examples in place of RECIPE_SERVICE, this process holds the corpus itself.
"""

import sys

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from recipe.reward.trainers.trl import alignment_reward
from recipe.text import planner_messages

MODEL = sys.argv[1] if len(sys.argv) > 1 else "Qwen/Qwen2.5-0.5B-Instruct"
PROMPTS = [
    ("make pancakes", ["whisk flour, eggs and milk into a batter"]),
    ("change a tire", ["park the car on level ground", "loosen the lug nuts"]),
]


def brevity(completions, **_):
    """Yours: 1 for at most six lines, less for more."""
    return [min(1.0, 6 / max(1, len(reply[-1]["content"].strip().split("\n")))) for reply in completions]


rows = [{"prompt": planner_messages(goal, history), "goal": goal, "history": history} for goal, history in PROMPTS]
trainer = GRPOTrainer(
    model=MODEL,
    reward_funcs=[alignment_reward, brevity],
    train_dataset=Dataset.from_list(rows),
    args=GRPOConfig(
        output_dir="runs/examples-trl",
        reward_weights=[1.0, 0.1],
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=96,
        max_steps=2,
        logging_steps=1,
        report_to=[],
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
    ),
)
trainer.train()
for row in trainer.state.log_history:
    if "reward" in row:
        print(f"step {row['step']}: alignment {row['rewards/alignment_reward/mean']:+.3f}, rho {row['rho']:.3f}")
