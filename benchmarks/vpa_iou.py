"""Four quantities that are called mIoU, on the same random plans: the table of docs/vpa.md.

Each set has 1,024 references and plans over 105 actions, drawn uniformly; a plan's positions are the reference's with
the probability in the second column. Figures are means over the sets, in percent, with the deviation of one set.
"""

import argparse

import numpy as np

from recipe.evaluation.vpa.measures import batch_iou, bitwise_iou, cumulative_iou, per_sample_iou

ACTIONS, PLANS = 105, 1024
HEADINGS = ("per_sample", "cumulative, batch 256", "cumulative, batch 32", "bitwise", "batch, batch 256")


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    print(f"| T | share correct | {' | '.join(HEADINGS)} |")
    print(f"|{'---|' * (len(HEADINGS) + 2)}")
    for width in (3, 4):
        for share in (0.0, 0.25, 0.5):
            found = np.array([one_set(rng, width, share) for _ in range(options.sets)])
            cells = (f"{mean:.1f} ± {spread:.1f}" for mean, spread in zip(found.mean(0), found.std(0), strict=True))
            print(f"| {width} | {share:g} | {' | '.join(cells)} |")


def one_set(rng: np.random.Generator, width: int, share: float) -> list[float]:
    """The four quantities of one set, in percent."""
    reference = rng.integers(ACTIONS, size=(PLANS, width))
    copied = rng.random((PLANS, width)) < share
    plan = np.where(copied, reference, rng.integers(ACTIONS, size=(PLANS, width)))
    values = (
        float(per_sample_iou(plan, reference).mean()),
        cumulative_iou(plan, reference, 256),
        cumulative_iou(plan, reference, 32),
        bitwise_iou(plan, reference),
        batch_iou(plan, reference, 256),
    )
    return [100 * value for value in values]


if __name__ == "__main__":
    main()
