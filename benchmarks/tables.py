"""Saved results as Markdown: a table of speeds for each shape, and tables of the other measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.profile import PYTHON, TIMING, seconds_of
from benchmarks.results import QUIET_PROCESSORS, Result, engine_line, machine_line

Cells = tuple[str, ...]

UNKNOWN = "–"


def document(results: Sequence[Result]) -> str:
    """All tables, machine by machine."""
    parts: list[str] = []
    for machine in dict.fromkeys(machine_line(result.machine) for result in results):
        here = [result for result in results if machine_line(result.machine) == machine]
        parts += [f"### {machine}", _conditions(here)]
        for title, make in SECTIONS.items():
            parts += [f"#### {title.format(model)}\n\n{table}" for model, table in make(here)]
    return "\n\n".join(parts)


def subject_name(result: Result) -> str:
    """Type of a model, and whether it is folded."""
    kind: str = result.subject["type"]
    return f"{kind} folded" if result.subject["folded"] else kind


def _conditions(results: Iterable[Result]) -> str:
    days = sorted({result.at[:10] for result in results})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    text = f"Measured {when}."
    loads = [result.conditions.get("other_processors") or 0.0 for result in results]
    if max(loads) > QUIET_PROCESSORS:
        text += f" Other processes kept up to {max(loads):.1f} processors busy meanwhile."
    return text


def _speeds(results: Sequence[Result]) -> Iterable[tuple[str, str]]:
    """One table a model: decode and prefill."""
    chosen = [result for result in results if result.benchmark in ("decode", "prefill")]
    head = (
        "what, type, kernel, threads, bits, tokens/s, GB/s, of bandwidth, peer, tokens/s, of bandwidth, ratio"
    )
    for model in dict.fromkeys(result.subject["model"] for result in chosen):
        rows = [_speed_row(result) for result in chosen if result.subject["model"] == model]
        yield model, _table(head.split(", "), sorted(rows))


def _speed_row(result: Result) -> Cells:
    settings, values, peer = result.settings, result.values, result.peer or {}
    if result.benchmark == "decode":
        what = f"decode after {settings['context_fill']:,} tokens"
        own = (f"{values['bytes_per_second'] / 1e9:.1f}", f"{values['share']:.0%}")
    else:
        what, own = f"prefill of {settings['tokens']:,} in blocks of {settings['block']}", (UNKNOWN, UNKNOWN)
    return (
        what,
        subject_name(result),
        *_engine(result),
        _figure(values["tokens_per_second"]),
        *own,
        peer.get("name", UNKNOWN),
        _figure(peer.get("tokens_per_second")),
        f"{peer['share']:.0%}" if "share" in peer else UNKNOWN,
        f"{peer['ratio']:.1f}" if peer else UNKNOWN,
    )


def _loads(results: Sequence[Result]) -> Iterable[tuple[str, str]]:
    head = (
        "model, type, kernel, threads, bits, file MB, load s, sha256sum s, ratio, hashlib s, ratio, more MB"
    )
    rows = []
    for result in results:
        if result.benchmark != "load":
            continue
        values, nbytes = result.values, result.subject["file_bytes"]
        peak = values["peak_bytes"]
        rows.append(
            (
                result.subject["model"],
                subject_name(result),
                *_engine(result),
                f"{nbytes / 1e6:.0f}",
                f"{values['load_seconds']:.2f}",
                _seconds(values.get("sha256sum_seconds")),
                _seconds(values.get("sha256sum_ratio")),
                _seconds(values["hashlib_seconds"]),
                _seconds(values["hashlib_ratio"]),
                UNKNOWN if peak is None else f"{(peak - nbytes) / 1e6:.0f}",
            )
        )
    if rows:
        yield "", _table(head.split(", "), sorted(rows))


def _memories(results: Sequence[Result]) -> Iterable[tuple[str, str]]:
    head = "model, type, kernel, threads, bits, context, file MB, state MB, peak MB, beside both MB"
    rows = []
    for result in results:
        if result.benchmark != "memory" or result.values["peak_bytes"] is None:
            continue
        file, state = result.subject["file_bytes"], result.values["state_bytes"]
        peak = result.values["peak_bytes"]
        megabytes = (f"{nbytes / 1e6:.0f}" for nbytes in (file, state, peak, peak - file - state))
        context = f"{result.settings['context']:,}"
        rows.append((result.subject["model"], subject_name(result), *_engine(result), context, *megabytes))
    if rows:
        yield "", _table(head.split(", "), sorted(rows))


def _first_tokens(results: Sequence[Result]) -> Iterable[tuple[str, str]]:
    head = "question, prompt tokens, of them cached, first token ms, between tokens p50 ms, p99 ms"
    for result in results:
        if result.benchmark != "first-token":
            continue
        rows = [
            (
                name,
                f"{entry['prompt_tokens']:.0f}",
                f"{entry['cached_tokens']:.0f}",
                _milliseconds(entry["first_token_seconds"]),
                _milliseconds(entry["gap_seconds_p50"]),
                _milliseconds(entry["gap_seconds_p99"]),
            )
            for name, entry in result.values["questions"].items()
        ]
        ready = f"Ready {result.values['ready_seconds']:.2f} s after its start; {engine_line(result.engine)}."
        yield result.subject["model"], f"{ready}\n\n{_table(head.split(', '), rows)}"


def _profiles(results: Sequence[Result]) -> Iterable[tuple[str, str]]:
    for result in results:
        if result.benchmark != "profile":
            continue
        title = f"{result.subject['model']} {subject_name(result)}, {engine_line(result.engine)}"
        for part, what in (
            ("decode", "one decode step"),
            ("prefill", f"a block of {result.settings['block']}"),
        ):
            yield f"{what}, {title}", _profile_table(result.values[part])


def _profile_table(profile: dict[str, dict[str, float]]) -> str:
    whole = seconds_of(profile)
    rows = [
        (
            name,
            "" if name in (PYTHON, TIMING) else f"{entry['calls']:.0f}",
            f"{entry['seconds'] * 1000:.3f}",
            f"{entry['seconds'] / whole:.1%}",
        )
        for name, entry in profile.items()
    ]
    return _table(("operation", "calls", "ms", "share"), [*rows, ("all", "", f"{whole * 1000:.3f}", "")])


SECTIONS: dict[str, Callable[[Sequence[Result]], Iterable[tuple[str, str]]]] = {
    "Speed of {}": _speeds,
    "Loading": _loads,
    "Memory": _memories,
    "Through HTTP: {}": _first_tokens,
    "Where the time goes: {}": _profiles,
}


def _engine(result: Result) -> tuple[str, str, str]:
    engine = result.engine
    return engine["kernel"], str(engine["threads"]), str(engine["bits"])


def _figure(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def _milliseconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{seconds * 1000:.1f}"


def _table(head: Sequence[str], rows: Sequence[Cells]) -> str:
    lines = [tuple(head), ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
