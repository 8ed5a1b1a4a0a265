"""A report as Markdown: its sentences and tables, without figures and examples."""

import re
from collections.abc import Iterator, Sequence

from recipe.report.elements import NamedValues, Section, Table
from recipe.report.html import shown

# Characters of a text.
_MOST_CHARACTERS = 2_000


def render_markdown(title: str, sentences: Sequence[str], sections: Sequence[Section]) -> str:
    """The whole document. The same report gives the same bytes."""
    parts = [f"# {markdown_text(title)}", *(f"* {markdown_text(sentence)}" for sentence in sentences)]
    for section in sections:
        parts += ["", f"## {markdown_text(section.title)}", ""]
        parts += [f"> **{markdown_text(warning)}**\n" for warning in section.warnings]
        parts += [f"{markdown_text(paragraph)}\n" for paragraph in section.paragraphs]
        parts += [*(f"* {markdown_text(finding)}" for finding in section.findings), ""]
        for block in section.blocks:
            if isinstance(block, Table):
                parts += _table_lines(block)
            elif isinstance(block, NamedValues):
                parts += [*(f"* {markdown_text(name)}: {markdown_text(value)}" for name, value in block.pairs), ""]
    return "\n".join(parts).rstrip() + "\n"


def _table_lines(table: Table) -> Iterator[str]:
    """Caption, table and notes, line by line; small texts in brackets."""
    yield f"**{markdown_text(table.caption)}**{f' ({markdown_text(table.about)})' if table.about else ''}\n"
    yield _line([table.first, *(f"{head.text}, {head.group}" if head.group else head.text for head in table.headings)])
    yield "|" + "---|" * (1 + len(table.headings))
    section = ""
    for row in table.rows:
        if row.section not in ("", section):
            yield _line([f"*{row.section}*", *[""] * len(table.headings)])
        section = row.section
        cells = [f"{row.name} ({row.about})" if row.about else row.name]
        for cell in row.cells:
            text = f"**{cell.text}**" if cell.clear else cell.text
            cells.append(f"{text} ({cell.small})" if cell.small else text)
        yield _line(cells)
    yield ""
    yield from (f"{markdown_text(note)}\n" for note in table.notes)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(markdown_text(cell).replace("|", "\\|") for cell in cells) + " |"


def markdown_text(text: str) -> str:
    """One line in which nothing of a name is taken for HTML, a link, a picture or the start of a block."""
    # A line feed would begin a new block: a name could then write a heading or a list.
    flat = re.sub(r"\s+", " ", shown(text, _MOST_CHARACTERS)).strip()
    return re.sub(r"\](?=[(:])", r"]\\", flat).replace("&", "&amp;").replace("<", "&lt;")
