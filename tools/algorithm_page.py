"""Generated parts of docs/reference/algorithms.md, from the list of algorithms (`tools.golden` writes it).

Of each algorithm's section it writes the summary and the table of settings, and between the markers the overview of
features of each; all other text is left alone. An algorithm without a section gets one after its predecessor's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from katib.model.algorithms import AlgorithmInfo, Feature, SettingSpec
from suggestion_services.algorithms import ENTRIES

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "algorithms.md"
CHAPTERS = {False: "## Suggestion", True: "## Early stopping"}
_FEATURES = {
    Feature.SEVERAL_OBJECTIVES: "objectives",
    Feature.CONSTRAINTS: "constraints",
    Feature.CONDITIONAL_PARAMETERS: "conditions",
    Feature.EARLIER_TRIALS: "warm start",
    Feature.PRIORS: "priors",
}
_BEGIN, _END = "<!-- begin: written by tools.algorithm_page -->", "<!-- end -->"
_TABLE = re.compile(r"^\| setting \|.*?(?=\n[^|]|\n\n|\Z)", re.MULTILINE | re.DOTALL)


def settings_table(settings: Sequence[SettingSpec]) -> str:
    rows = [f"| `{s.name}` | {s.type} | {s.default} | {' '.join(_sentences(s))} |" for s in settings]
    return "\n".join(["| setting | type | default | |", "|---|---|---|---|", *rows])


def _sentences(spec: SettingSpec) -> list[str]:
    bounds = (
        ("Above", spec.above),
        ("At least", spec.at_least),
        ("Below", spec.below),
        ("At most", spec.at_most),
    )
    choices = f"One of {', '.join(f'`{choice}`' for choice in spec.choices)}." if spec.choices else ""
    limits = [f"{words} {bound:g}." for words, bound in bounds if bound is not None]
    return [text for text in (spec.description, choices, *limits) if text]


def overview(infos: Sequence[AlgorithmInfo]) -> str:
    """Return the features of each algorithm, as a table in Markdown."""
    rows = [
        f"| [`{info.name}`](#{info.name}) | {'yes' if info.reads_history else 'no'} | "
        + " | ".join("yes" if feature in info.features else "" for feature in _FEATURES)
        + " |"
        for info in infos
    ]
    head = f"| algorithm | learns | {' | '.join(_FEATURES.values())} |"
    return "\n".join([head, "|" + "---|" * (len(_FEATURES) + 2), *rows])


def updated(text: str) -> str:
    """Return the page with everything that the list of algorithms says."""
    infos = [entry.info for entry in ENTRIES]
    before, found, rest = text.partition(_BEGIN)
    if found:
        _, _, after = rest.partition(_END)
        table = overview([info for info in infos if not info.early_stopping])
        text = f"{before}{_BEGIN}\n{table}\n{_END}{after}"
    for early_stopping, heading in CHAPTERS.items():
        begin = text.index(f"\n{heading}\n") + len(heading) + 2
        end = text.find("\n## ", begin)
        end = len(text) if end < 0 else end
        chapter = _chapter(text[begin:end], [info for info in infos if info.early_stopping == early_stopping])
        text = text[:begin] + chapter + text[end:]
    return text


def _chapter(text: str, infos: Sequence[AlgorithmInfo]) -> str:
    """Return a chapter with a section for each algorithm, in their order."""
    intro, *parts = re.split(r"(?m)^### ", text)
    sections = {part.partition("\n")[0].strip(): part.partition("\n")[2].strip() for part in parts}
    unknown = set(sections) - {info.name for info in infos}
    if unknown:
        raise SystemExit(f"{PAGE.name} has sections of no algorithm: {', '.join(sorted(unknown))}")
    return intro + "\n".join(f"### {info.name}\n\n{_section(sections.get(info.name, ''), info)}\n" for info in infos)


def _section(text: str, info: AlgorithmInfo) -> str:
    """Return a section with the summary in front and the table in place of the old one, or at its end."""
    prose = text.partition("\n\n")[2].strip() if text else ""
    table = settings_table(info.settings) if info.settings else ""
    if not table:
        return "\n\n".join(filter(None, [info.summary, _TABLE.sub("", prose).strip()]))
    if not _TABLE.search(prose):
        return "\n\n".join(filter(None, [info.summary, prose, table]))
    return "\n\n".join([info.summary, _TABLE.sub(lambda _: table, prose, count=1)])
