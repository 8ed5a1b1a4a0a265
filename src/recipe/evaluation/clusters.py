"""Which examples are alike, so that intervals and tests draw them together."""

from recipe.types import Example


def video_of(example: Example) -> str:
    """A name for the video that an example is cut from, one of its own in each dataset; the goal without a video.

    >>> video_of(Example("a", "coin", "v1", "make tea", ("boil",), ("pour",), 1))
    'coin v1'
    """
    if example.video_id:
        return f"{example.source} {example.video_id}"
    return f"goal {example.source} {example.goal}"
