"""The leak guard: near-copies equal brute force, inputs of every kind, what is filtered, counted and reported."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus import near_copies
from recipe.corpus.build import build_corpus
from recipe.corpus.excluded import read_excluded, read_exclusions
from recipe.corpus.leaks import ExclusionReport, Exclusions, leakage
from recipe.corpus.near_copies import NearCopies, words_of
from recipe.data.examples import write_examples
from recipe.data.narrations import read_narrations
from recipe.data.procedures import read_procedures, write_procedures
from recipe.errors import InputError
from recipe.types import Example, Narration, Procedure, Segment, Step

VOCABULARY = [f"w{n}" for n in range(16)]
LONG = "now pour the warm milk slowly into the large mixing bowl"
COPY = "Now, please pour the warm milk SLOWLY into the large mixing bowl!"
OTHER = "cut the pastry into eight strips and brush them with butter"


def texts_of(words: list[str], most: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words), min_size=1, max_size=most).map(" ".join)


def nearest_by_brute_force(text: str, texts: Iterable[str], fewest: int) -> tuple[str, float] | None:
    """All pairs, with fractions of whole numbers: the most similar text, the first of equals."""
    mine, best = words_of(text), None
    for other in texts:
        theirs = words_of(other)
        shared, union = len(mine & theirs), len(mine | theirs)
        near = 5 * shared >= 4 * union and min(len(mine), len(theirs)) >= fewest
        if near and (best is None or shared / union > best[1]):
            best = (other, shared / union)
    return best


@st.composite
def collections(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Texts to index, and texts to ask for: some are drawn alike, some are indexed ones with words changed."""
    indexed = draw(st.lists(texts_of(VOCABULARY, 20), min_size=1, max_size=12))
    asked = draw(st.lists(texts_of([*VOCABULARY, "x", "y"], 20), max_size=4))
    for text in draw(st.lists(st.sampled_from(indexed), max_size=6)):
        added = draw(st.lists(st.sampled_from([*VOCABULARY, "x", "y"]), max_size=3))
        lost = draw(st.sets(st.sampled_from(VOCABULARY), max_size=2))
        asked.append(" ".join([word for word in text.split() if word not in lost] + added))
    return indexed, asked


@settings(max_examples=150, deadline=None)
@given(collections(), st.sampled_from([(2, 64), (3, 0), (5, 8), (4, 6), (4, 10)]))
def test_near_copies_are_those_that_comparing_every_pair_finds(
    texts: tuple[list[str], list[str]], limits: tuple[int, int]
) -> None:
    indexed, asked = texts
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(near_copies, "WORDS", limits[0])
        patched.setattr(near_copies, "MOST_PAIRED", limits[1])
        found = NearCopies(indexed).find(asked)
    assert found == [nearest_by_brute_force(text, indexed, limits[0]) for text in asked]


def test_a_text_that_differs_in_one_word_of_nine_is_near_and_in_one_of_eight_is_not() -> None:
    nine = [f"w{n}" for n in range(9)]
    eight = nine[:8]
    assert NearCopies([" ".join(nine)]).find([" ".join([*nine[:8], "x"])]) == [(" ".join(nine), 0.8)]
    assert NearCopies([" ".join(eight)]).find([" ".join([*eight[:7], "x"])]) == [None]
    assert NearCopies([" ".join(eight)]).find([" ".join([*eight, "x"])]) == [(" ".join(eight), 8 / 9)]
    assert NearCopies([" ".join(eight)]).find([" ".join(eight[:7])]) == [None]  # too few words


def test_case_marks_width_and_repetition_make_no_difference() -> None:
    (found,) = NearCopies([LONG]).find([f"  {LONG.upper()}!! {LONG.replace(' ', ' - ')} ｍｉｌｋ"])
    assert found == (LONG, 1.0)


def narration(video_id: str, *texts: str) -> Narration:
    return Narration(video_id, tuple(Segment(text, float(n), n + 1.0) for n, text in enumerate(texts)), "t", "s")


def test_a_narration_goes_by_its_id_and_a_caption_by_its_text() -> None:
    given_ = [
        narration("kept", OTHER, "short", COPY),
        narration("test", OTHER),
        narration("alone", COPY),
        narration("untouched", OTHER),
        narration("silent"),  # which no text tells, and a build refuses
    ]
    report = ExclusionReport()
    kept = list(Exclusions(["test"], [LONG, "short"]).filter(given_, report))
    assert kept == [replace(given_[0], segments=given_[0].segments[:2]), *given_[3:]]
    counts = report.as_dict()
    assert [(one["video_id"], one["caption"], one["excluded"]) for one in counts.pop("examples")] == [
        ("kept", COPY, LONG),
        ("alone", COPY, LONG),
    ]
    assert counts == {"narrations": 5, "narrations_by_id": 1, "narrations_by_text": 1, "captions_by_text": 2}


@pytest.mark.parametrize(("copies", "others", "gone"), [(3, 9, True), (3, 10, False), (2, 1, False), (2, 0, False)])
def test_a_video_under_another_id_is_known_by_its_captions(copies: int, others: int, gone: bool) -> None:
    mine = [f"{LONG} number {n}" for n in range(copies)]
    rest = [f"{OTHER} and place {n} in row {n + 1} of pan {n + 2}" for n in range(others)]
    rest += ["and then"] * 50  # captions too short to be compared do not weigh
    kept = list(Exclusions([], mine).filter([narration("reupload", *mine, *rest)], ExclusionReport()))
    assert [[segment.text for segment in one.segments] for one in kept] == ([] if gone else [rest])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "d"]),
            st.lists(st.sampled_from([LONG, COPY, OTHER, "chop", f"{OTHER} twice"]), min_size=1, max_size=6),
        ),
        max_size=6,
    )
)
def test_what_is_left_is_clean_and_all_is_accounted_for(drawn: list[tuple[str, list[str]]]) -> None:
    exclusions = Exclusions(["a"], [LONG])
    given_ = [narration(video_id, *texts) for video_id, texts in drawn]
    report = ExclusionReport()
    kept = list(exclusions.filter(given_, report))
    assert all(
        one.segments and exclusions.compare(one) == (False, False, [None] * len(one.segments), "", 0) for one in kept
    )
    assert len(kept) + report.narrations_by_id + report.narrations_by_text == report.narrations == len(given_)
    assert list(exclusions.filter(kept, ExclusionReport())) == kept
    copies = [text for video_id, texts in drawn if video_id != "a" for text in texts if text in (LONG, COPY)]
    assert report.captions_by_text == len(copies)


def example(name: str, video_id: str, split: str) -> Example:
    return Example(name, "made", video_id, "goal", (f"{name} first",), (f"{name} then",), 1, split)


def test_inputs_of_every_kind_are_told_apart(tmp_path: Path) -> None:
    write_examples(tmp_path / "e.jsonl", [example("e1", "v1", "train"), example("e2", "", "test")])
    procedures = [
        Procedure("made", "v3", "g", (Step("boil"), Step("pour")), "val"),
        Procedure("m", "v4", "g", (Step("x"),)),
    ]
    write_procedures(tmp_path / "p.jsonl", procedures)
    rows = [{"video_id": "v5", "sentences": ["boil", "boil"]}, {"video_id": "v5", "sentences": ["again"]}]
    (tmp_path / "n.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "ids.txt").write_text("\ufeffv6\n\n -v_7 \n")
    found = {path.stem: read_excluded(path) for path in tmp_path.iterdir()}
    assert found == {
        "e": [("made", "v1", ("e1 first", "e1 then")), ("made", "", ("e2 first", "e2 then"))],
        "p": [("made", "v3", ("boil", "pour")), ("m", "v4", ("x",))],
        "n": [("n.jsonl", "v5", ("boil", "boil"))],
        "ids": [("ids.txt", "v6", ()), ("ids.txt", "-v_7", ())],
    }
    assert read_excluded(tmp_path / "e.jsonl", "test") == [("made", "", ("e2 first", "e2 then"))]
    (tmp_path / "p.jsonl").write_text((tmp_path / "p.jsonl").read_text().replace('"goal": "g"', '"goal": ""'))
    assert read_excluded(tmp_path / "p.jsonl", "val") == [("made", "v3", ("boil", "pour"))]
    paths = sorted(tmp_path.iterdir())
    every = read_exclusions(paths)
    assert every.video_ids == {"v1", "v3", "v4", "v5", "v6", "-v_7"}
    assert every.identity == read_exclusions(paths[::-1]).identity
    assert every.identity != read_exclusions(paths[1:]).identity
    assert json.loads(json.dumps(every.identity)) == every.identity


def test_procedures_of_ones_own_are_kept_out_by_id_and_by_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{"goal": "t", "steps": [LONG, "stir"]}, {"video_id": "v", "goal": "t", "steps": [OTHER], "topic": "x"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = read_procedures(path, on_bad="skip").procedures[0].video_id
    exclusions, report = read_exclusions([path]), ExclusionReport()
    assert exclusions.video_ids == {made, "v"}
    corpus = [*read_narrations(path), narration("reupload", LONG.upper(), "chop")]
    assert [one.video_id for one in corpus[:2]] == [made, "v"]
    assert [segment.text for one in exclusions.filter(corpus, report) for segment in one.segments] == ["chop"]
    assert (report.narrations_by_id, report.captions_by_text) == (2, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.jsonl", None, "the file does not exist"),
        ("ids.txt", b"v1\nv2, v3\n", r"ids\.txt, line 2: 'v2, v3' is no video id; give one video id a line"),
        ("ids.txt", "v1\r\nv2\u2028v3".encode(), r"ids\.txt, line 2: .* is no video id"),
        ("ids.txt", b"\n", "the file is empty"),
        ("ids.txt", b"\xff\xfe", "not UTF-8"),
        (
            "p.jsonl",
            b'{"source": "s", "video_id": "v", "goal": "g", "steps": [{"text": "x"}]}',
            "no procedure is in split",
        ),
        ("p.jsonl", b'{"video_id": "v", "split": "test", "steps": [3]}', r"line 1, field 'steps\[0\]'"),
        (
            "p.jsonl",
            b'{"video_id": "v", "split": "test", "steps": [{"text": " "}]}',
            r"line 1, field 'steps\[0\].text'",
        ),
        ("p.jsonl", b'{"split": "test", "steps": [{"text": "x"}]}', "line 1, field 'video_id'"),
        ("other.jsonl", b'{"video_id": "v"}', r"other\.jsonl"),
    ],
)
def test_files_that_are_none_of_these_are_one_sentence(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_exclusions([tmp_path / name], "test")
    assert "\n" not in str(caught.value)


def built(folder: Path, narrations: Iterable[Narration]) -> Path:
    return build_corpus(narrations, folder, CorpusConfig(encoder=EncoderConfig(name="hash:8"), shard_size=2))


def test_a_corpus_tells_what_it_holds_of_excluded_videos_and_filtered_it_is_clean(tmp_path: Path) -> None:
    numbered = [f"{LONG} number {n}" for n in range(3)]
    spoken = [narration("clean", OTHER, "chop"), narration("test", LONG), narration("other", "stir", COPY, OTHER)]
    spoken.append(narration("reupload", *numbered, OTHER))
    rows = [
        {"video_id": "test", "sentences": [LONG, *numbered]},
        {"video_id": "absent", "sentences": ["chop"]},
    ]
    (tmp_path / "n.jsonl").write_text("\n".join(map(json.dumps, rows)))
    exclusions = read_exclusions([tmp_path / "n.jsonl"])
    report = leakage(built(tmp_path / "c", spoken), exclusions)
    assert (report.narrations, report.captions, report.excluded_videos) == (4, 10, 2)
    assert report.videos == ("test",)
    assert report.copied_captions == 4
    assert {one.video_id for one in report.examples} == {"other", "reupload"}
    assert report.checked == (("n.jsonl", 2, 2, 1, 0),)
    assert report.clean is False
    values: dict[str, Any] = json.loads(json.dumps(report.as_dict()))
    assert values["copied_videos"] == [{"video_id": "reupload", "copied": 3, "captions": 4}]
    shown = [value.partition(",")[0] for _, value in report.rows()]
    assert shown[:3] == ["1 of 2 are in the corpus", "1 of 4 narrations", "4 of 10 captions"]
    left = leakage(built(tmp_path / "filtered", exclusions.filter(spoken, ExclusionReport())), exclusions)
    assert (left.clean, left.narrations) == (True, 2)
