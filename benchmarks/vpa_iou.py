"""Four quantities that are called mIoU, on the same random plans.

Each set has 1,024 references and plans over 105 actions, drawn uniformly; a plan's positions are the reference's with
the probability in the second column. Figures are means over the sets, in percent, with the deviation of one set.
"""

import argparse

import numpy as np
from common import add_json, write_result

from recipe.evaluation.vpa.measures import batch_iou, bitwise_iou, cumulative_iou, per_sample_iou

ACTIONS, PLANS = 105, 1024
HEADINGS = ("per_sample", "cumulative, batch 256", "cumulative, batch 32", "bitwise", "batch, batch 256")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    add_json(parser, "vpa-iou")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    rows, values = [], []
    for width in (3, 4):
        for share in (0.0, 0.25, 0.5):
            found = np.array([one_set(rng, width, share) for _ in range(options.sets)])
            cells = (f"{mean:.1f} ± {spread:.1f}" for mean, spread in zip(found.mean(0), found.std(0), strict=True))
            rows.append([str(width), f"{share:g}", *cells])
            values.append(
                {"T": width, "share correct": share, "means": found.mean(0).tolist(), "sd": found.std(0).tolist()}
            )
            print(*rows[-1], sep="  ")
    write_result(
        options.json,
        {"sets": options.sets, "seed": options.seed, "quantities": HEADINGS, "rows": values},
        title="Four quantities called mIoU, on random plans",
        guide="vpa.md",
        body=[
            f"{options.sets} sets of {PLANS:,} references and plans over {ACTIONS} actions; percent, with the "
            "deviation of one set.",
            {"columns": ["T", "share correct", *HEADINGS], "rows": rows},
        ],
        partial=options.sets < parser.get_default("sets"),
    )


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
