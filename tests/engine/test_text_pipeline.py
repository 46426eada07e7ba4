from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInputError
from engine.text_pipeline import Delta, ReasoningSplitter, StopMatcher, TextPipeline


def cut(text: str, stops: list[str]) -> str:
    """The definition: read on until a stop string is complete; of several, the longest is taken off."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


def halves(text: str, inside: bool) -> tuple[str, str]:
    """The definition of the reasoning and the content in a whole text."""
    if text.lstrip().startswith("<think>"):
        text = text.lstrip().removeprefix("<think>")
    elif not inside:
        return "", text
    reasoning, _, content = text.partition("</think>")
    return reasoning.strip("\n"), content.lstrip("\n")


def joined(deltas: list[Delta]) -> tuple[str, str]:
    """All reasoning and all content of some deltas."""
    return (
        "".join(delta.text for delta in deltas if delta.kind == "reasoning"),
        "".join(delta.text for delta in deltas if delta.kind == "content"),
    )


def run(pipeline: TextPipeline, pieces: list[bytes]) -> list[Delta]:
    """The deltas of a whole output."""
    deltas = [delta for piece in pieces for delta in pipeline.push(piece)]
    return deltas + pipeline.finish()


class TestStopMatcher:
    """Stop strings."""

    def test_nothing_of_a_stop_is_released(self) -> None:
        """A stop string cut over several pushes never shows, and text before it comes at once."""
        matcher = StopMatcher(["DEFGHIJ"])
        assert [matcher.push(part) for part in ("ABCDEF", "G", "HI", "JKL", "M")] == ["ABC", "", "", "", ""]
        assert matcher.matched == "DEFGHIJ"
        assert matcher.finish() == ""

    def test_only_a_possible_beginning_is_held(self) -> None:
        """Text that cannot begin a stop is released with its own push; a false beginning soon after."""
        matcher = StopMatcher(["<stop>"])
        assert [matcher.push(part) for part in ("one", " two<", "st", "ep", "<")] == [
            "one",
            " two",
            "",
            "<step",
            "",
        ]
        assert matcher.finish() == "<"
        assert matcher.matched is None

    def test_overlapping_beginnings(self) -> None:
        """A beginning inside a failed match is not missed."""
        matcher = StopMatcher(["aab"])
        assert matcher.push("aaa") == "a"
        assert matcher.push("b") == ""
        assert matcher.matched == "aab"

    def test_several_stops(self) -> None:
        """The first one to be completed ends the text; of two that end together, the longer one."""
        early = StopMatcher(["abcd", "bc"])
        assert early.push("xabcd") == "xa"
        assert early.matched == "bc"
        longer = StopMatcher(["c", "abc"])
        assert longer.push("xabc") == "x"
        assert longer.matched == "abc"

    def test_empty_stop(self) -> None:
        """An empty stop string is refused."""
        with pytest.raises(InvalidInputError) as caught:
            StopMatcher(["a", ""])
        assert caught.value.field == "stop"

    @given(
        stops=st.lists(st.text("ab<", min_size=1, max_size=5), max_size=4),
        parts=st.lists(st.text("ab<", max_size=6), max_size=10),
    )
    def test_any_split(self, stops: list[str], parts: list[str]) -> None:
        """However the text is cut, what comes out is the text before the stop."""
        matcher = StopMatcher(stops)
        released = "".join(matcher.push(part) for part in parts)
        whole = "".join(parts)
        expected = cut(whole, stops)
        assert (matcher.matched is not None) == any(stop in whole for stop in stops)
        assert expected.startswith(released)
        assert released + matcher.finish() == expected

    def test_long_stops_take_linear_time(self) -> None:
        """A long stop string that almost matches all the time does not slow the output down."""
        matcher = StopMatcher(["a" * 50_000 + "b"])
        start = time.perf_counter()
        for _ in range(2_000):
            matcher.push("a" * 100)
        assert time.perf_counter() - start < 20


class TestReasoningSplitter:
    """Reasoning and content."""

    @pytest.mark.parametrize(
        ("inside", "parts", "reasoning", "content"),
        [
            (True, ["Let me see.\n", "</think>", "\n\n", "Paris."], "Let me see.", "Paris."),
            (True, ["\n", "a\n\nb", "\n</th", "ink>\n", "\nc\n"], "a\n\nb", "c\n"),
            (True, ["never closed"], "never closed", ""),
            (True, ["cut in </thi"], "cut in </thi", ""),
            (True, ["<think>", "again</think>x"], "again", "x"),
            (True, ["</think>", "\n\nx"], "", "x"),
            (True, [], "", ""),
            (True, ["a </b> <think> c</think>d</think>e"], "a </b> <think> c", "d</think>e"),
            (False, ["Paris."], "", "Paris."),
            (False, ["<thi", "nk>\na\n</think>\n\nb"], "a", "b"),
            (False, ["\n\n <think>a</think>b"], "a", "b"),
            (False, ["\n\n b"], "", "\n\n b"),
            (False, [" <thin"], "", " <thin"),
            (False, ["  "], "", "  "),
            (False, ["Use `<think>`", " and </think> so"], "", "Use `<think>` and </think> so"),
        ],
    )
    def test_cases(self, inside: bool, parts: list[str], reasoning: str, content: str) -> None:
        """Tags whole, cut, missing, doubled or literal, from both starts."""
        splitter = ReasoningSplitter(inside)
        pieces = [piece for part in parts for piece in splitter.push(part)] + splitter.finish()
        assert "".join(text for kind, text in pieces if kind == "reasoning") == reasoning
        assert "".join(text for kind, text in pieces if kind == "content") == content

    def test_text_is_not_delayed(self) -> None:
        """Only line breaks and a possible tag wait; everything else comes with its push."""
        splitter = ReasoningSplitter(True)
        assert splitter.push("one") == [("reasoning", "one")]
        assert splitter.push(" two\n<") == [("reasoning", " two")]
        assert splitter.push("b") == [("reasoning", "\n<b")]
        assert splitter.push("</think>") == []
        assert splitter.push("\nthree\n") == [("content", "three\n")]
        assert splitter.push("<think>") == [("content", "<think>")]

    @given(
        inside=st.booleans(),
        parts=st.lists(
            st.sampled_from(["<think>", "</think>", "\n", " ", "a", "<", "/", "th", "think>", ">", "b\n"]),
            max_size=12,
        ),
        data=st.data(),
    )
    def test_any_split(self, inside: bool, parts: list[str], data: Any) -> None:
        """However the text is cut, both halves are those of the whole text, reasoning first."""
        whole = "".join(parts)
        splitter = ReasoningSplitter(inside)
        pieces: list[tuple[str, str]] = []
        at = 0
        while at < len(whole):
            size = data.draw(st.integers(1, len(whole) - at))
            pieces += splitter.push(whole[at : at + size])
            at += size
        pieces += splitter.finish()
        kinds = [kind for kind, _ in pieces]
        assert kinds == sorted(kinds, reverse=True)
        assert all(text for _, text in pieces)
        halves_out = tuple(
            "".join(text for kind, text in pieces if kind == wanted) for wanted in ("reasoning", "content")
        )
        assert halves_out == halves(whole, inside)


class TestTextPipeline:
    """All stages together."""

    def test_stages_in_order(self) -> None:
        """Bytes become characters, reasoning is told apart, and a stop string ends everything."""
        pipeline = TextPipeline(["END"], "inside")
        pieces = [b"think \xf0\x9f", b"\x98\xb8\n</thi", b"nk>\n\nHi", b" E", b"ND \xf0\x9f", b"more"]
        assert [pipeline.push(piece) for piece in pieces] == [
            [Delta("reasoning", "think ")],
            [Delta("reasoning", "😸")],
            [Delta("content", "Hi")],
            [Delta("content", " ")],
            [],
            [],
        ]
        assert pipeline.stopped
        assert pipeline.stop == "END"
        assert pipeline.finish() == []

    def test_flush_passes_through_every_stage(self) -> None:
        """What waits at the end comes out by the rules of all stages, a cut character included."""
        pipeline = TextPipeline(["<stop>"], "inside")
        assert pipeline.push(b"a\n</think") == [Delta("reasoning", "a")]
        assert pipeline.finish() == [Delta("reasoning", "\n</think")]
        cut_character = TextPipeline(["\ufffdx"], "off")
        assert cut_character.push(b"a\xe4\xbd") == [Delta("content", "a")]
        assert cut_character.finish() == [Delta("content", "\ufffd")]

    def test_stop_completed_by_the_flush(self) -> None:
        """A stop string that the last, replaced character completes still ends the text."""
        pipeline = TextPipeline(["b\ufffd"], "off")
        assert run(pipeline, [b"ab\xe4"]) == [Delta("content", "a")]
        assert pipeline.stopped

    def test_reasoning_off(self) -> None:
        """Without splitting, tags are ordinary text."""
        assert run(TextPipeline(), [b"<think>a</think>"]) == [Delta("content", "<think>a</think>")]

    @given(
        stops=st.lists(st.text("ab</é", min_size=1, max_size=4), max_size=3),
        raw=st.lists(
            st.sampled_from(
                [
                    b"<think>",
                    b"</think>",
                    b"\n",
                    b"a",
                    b"b",
                    b"</",
                    "é".encode(),
                    b"\xc3",
                    b"\xe4\xbd",
                    b"\xff",
                ]
            ),
            max_size=14,
        ).map(b"".join),
        reasoning=st.sampled_from(["off", "outside", "inside"]),
        data=st.data(),
    )
    def test_any_split(self, stops: list[str], raw: bytes, reasoning: Any, data: Any) -> None:
        """However the bytes are cut into tokens, the joined deltas are those of the whole output."""
        pieces = []
        at = 0
        while at < len(raw):
            size = data.draw(st.integers(1, len(raw) - at))
            pieces.append(raw[at : at + size])
            at += size
        text = cut(raw.decode("utf-8", "replace"), stops)
        expected = ("", text) if reasoning == "off" else halves(text, reasoning == "inside")
        pipeline = TextPipeline(stops, reasoning)
        assert joined(run(pipeline, pieces)) == expected
        if pipeline.stopped:
            assert pipeline.push(b"late") == pipeline.finish() == []
