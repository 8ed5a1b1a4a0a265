"""Texts made safe for a self-contained HTML page, and the templates of pages."""

import json
import re
from importlib.resources import files

# Texts of others as a page can show them: bounded, control characters visible, safe inside a script element.


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_UNSAFE = re.compile("[<>&\u2028\u2029]")
_PICTURES = 0x2400
"""Where Unicode keeps visible signs for the control characters 0 to 31."""


def shown(text: str, limit: int) -> str:
    """A text without control characters, cut after `limit` characters with a note of how many there were.

    >>> shown("boil\\x00 water", 20), shown("abcdef", 3)
    ('boil␀ water', 'abc … (6 characters, shortened)')
    """
    cut = text if len(text) <= limit else f"{text[:limit]} … ({len(text):,} characters, shortened)"
    return _CONTROL.sub(_visible, cut)


def script_json(value: object) -> str:
    """JSON that no text in it can break out of a script element with, whatever reads the page.

    >>> script_json({"plan": "</script><!--"})
    '{"plan":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _CONTROL.sub(_escaped, _UNSAFE.sub(_escaped, plain))


def _visible(found: re.Match[str]) -> str:
    code = ord(found.group())
    return chr(_PICTURES + code) if code < 0x20 else "\ufffd"


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


def template(package: str, name: str) -> str:
    """The text of `templates/<name>` in a package."""
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")
