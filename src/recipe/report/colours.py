"""The palette of pages and figures, each colour with its counterpart on a dark page; needs no plotting library."""

INK, MUTED, RULE = "#1b1b1a", "#6b6b66", "#dddcd5"
"""Text, secondary text, and grid."""

GREY, DARK_GREY, BLUE, VERMILION, PURPLE, GREEN = "#8a8a84", "#6e6e69", "#0072b2", "#d55e00", "#a0508a", "#00805f"
"""After Okabe and Ito, so that colour-blind readers tell them apart."""

SPARE = ("#9a7b00", "#3a8fb7", "#7a4fbf", "#a03b3b", "#547a22", "#2f6f6f", "#8a5a2b", "#4a5a9a")
"""Colours for names without one of their own, in order of appearance."""

DARK = {
    INK: "#ecebe4",
    MUTED: "#a3a29a",
    RULE: "#3a3a36",
    GREY: "#9a9a93",
    DARK_GREY: "#b3b2aa",
    BLUE: "#5cb3ea",
    VERMILION: "#f08a4b",
    PURPLE: "#d58cc2",
    GREEN: "#3fc29a",
    SPARE[0]: "#d6b640",
    SPARE[1]: "#7cc4e4",
    SPARE[2]: "#b79af0",
    SPARE[3]: "#e08888",
    SPARE[4]: "#a5c96a",
    SPARE[5]: "#6fc2c2",
    SPARE[6]: "#d0a074",
    SPARE[7]: "#9fb0ea",
}
"""Each colour of the figures with its counterpart on a dark page."""


def variable(colour: str) -> str:
    """The name of the style sheet's variable for a colour."""
    return f"--c-{colour.lstrip('#')}"
