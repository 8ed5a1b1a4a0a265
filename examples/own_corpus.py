"""A corpus of your own: build it from subtitles or captions, open it again, ask what it holds.

python examples/own_corpus.py [FILE OR FOLDER ...]
"""

import sys
from pathlib import Path

import recipe

sources = sys.argv[1:] or [Path(__file__).parent / "subtitles"]
corpus = recipe.build_corpus(sources, "corpora/examples")  # a second run opens it
print(corpus)
hits = corpus.search(["whisk the eggs with milk", "heat the pan", "flip the pancake"], k=3)
for hit in hits:
    narration = corpus.narration(hit.narration)
    print(f"{hit.score:.3f}  {narration.video_id}  {len(narration.segments)} segments")
