"""What NVLink's state says about a GPU: by the number of links that its model must have, and by its error counters.

Whether an inactive link is a fault is decided by the number that the model must have, never by the word alone: an
H100 NVL has 12 of 18 by design.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.readers.nvlink_text import NOTE, NOTE_WORDS, LinkedPart, LinkState, NvLink, read_nvlink
from fleet.readers.plain_text import any_of, evidence, named

KIND = "nvlink"
_LETTERS = re.compile(r"gpuId\s*\d+:[^\n]*\n\s*[UDX_](?: [UDX_])*\s*$", re.MULTILINE)
BER_LIMIT = 1e-9  # source: GoogleCloudPlatform/cluster-toolkit PR 5942, rule for GB200

# Active links by model. Several numbers: with and without a bridge. Sources: NVIDIA's product pages and data sheets;
# H100 NVL: Azure/azurehpc-health-checks issue 162. The first that fits counts.
_EXPECTED: tuple[tuple[str, frozenset[int]], ...] = (
    (r"H100 NVL", frozenset({12})),
    (r"H200 NVL", frozenset({12, 18})),
    (r"(?:H100|H800|A100|A800).*PCI", frozenset({0, 12})),
    (r"A800", frozenset({8})),
    (r"H800", frozenset({8})),
    (r"\b(?:GB200|GB300|B200|B300|B100|GH200|H200|H100|H20)\b", frozenset({18})),
    (r"A100", frozenset({12})),
    (r"V100.*(?:PCI|FHHL)|P100.*PCI", frozenset({0})),
    (r"V100", frozenset({6})),
    (r"P100", frozenset({4})),
    (r"A30\b|A40\b|RTX A[56]\d00|A4500\b", frozenset({0, 4})),
    (r"\b(?:L40S?|L4|T4|A10G?|A16|A2|P40|P4|RTX PRO 6000|RTX 6000 Ada)\b", frozenset({0})),
)


def recognises(text: str) -> bool:
    """Is there anything of NVLink's state, counters or capabilities in it?"""
    lower = text.lower()
    if not any_of(("nvlink", "gpuid", "all links are", "link "), lower):
        return False
    if any_of(("NVLINK Error Counts", "NvLink Link Status"), text) or ("gpuId" in text and _LETTERS.search(text)):
        return True
    if any_of(NOTE_WORDS, lower) and NOTE.search(text):
        return True
    return bool(re.search(r"GPU \d+: ", text) and re.search(r"Link \d+\s{0,8}[:,] *(?:\d|<|[A-Z]|inactive)", text))


def expected_links(model: str | None) -> frozenset[int] | None:
    """The numbers of active links that a GPU of that name can rightly have; None for a model that is not known."""
    if not model:
        return None
    return next((counts for words, counts in _EXPECTED if re.search(words, model, re.IGNORECASE)), None)


def link_findings(part: LinkedPart, expected: int | None = None) -> tuple[Finding, ...]:
    """What is wrong with a part's links. `expected` is the platform's number and goes before the model's."""
    allowed = frozenset({expected}) if expected is not None else expected_links(part.model)
    return (
        *_state_findings(part, allowed),
        *_slow(part),
        *(item for link in part.links for item in _counter_findings(part, link)),
    )


def _slow(part: LinkedPart) -> Iterable[Finding]:
    """Links that are up at a lower speed than the others of the same GPU."""
    best = max((link.speed_gb_s for link in part.links if link.speed_gb_s is not None), default=0.0)
    for link in part.links:
        if link.speed_gb_s is not None and link.speed_gb_s < 0.9 * best:
            shown = evidence(f"Link {link.index}: {link.speed_gb_s:g} GB/s, others {best:g} GB/s")
            text = "Slower than the other links of this GPU."
            yield Finding(
                f"{part.name} link {link.index}", "nvlink.slow", Severity.WARNING, Action.CHECK_LINK, shown, text
            )


def _state_findings(part: LinkedPart, allowed: frozenset[int] | None) -> Iterable[Finding]:
    if part.note and re.search("all links are", part.note, re.IGNORECASE) and (allowed is None or 0 not in allowed):
        yield _finding(part, "nvlink.all_down", part.note, "No link is active though this model has NVLink.", allowed)
    if not part.states_known or _cut(part, allowed):
        return
    up, total = part.count(LinkState.UP), len(part.links)
    down = [str(link.index) for link in part.links if link.state is LinkState.DOWN]
    off = [str(link.index) for link in part.links if link.state is LinkState.DISABLED]
    shown = f"{up} of {total} links up" + (f"; down: {named(down)}" if down else "")
    shown += f"; disabled: {named(off)}" if off else ""
    if allowed is not None:
        if up not in allowed:
            must = " or ".join(str(count) for count in sorted(allowed))
            code = "nvlink.all_down" if up == 0 else "nvlink.links_missing"
            code = "nvlink.too_many_links" if up > max(allowed) else code
            yield _finding(part, code, shown, f"{up} links are active, {must} must be.", allowed)
        return
    if down and up:
        yield _finding(part, "nvlink.down", shown, "Some links are down while others are up.", None)
    elif down:
        text = "All links are down: a fault where NVLink or a bridge is fitted."
        yield Finding(part.name, "nvlink.all_down", Severity.WARNING, Action.CHECK_LINK, evidence(shown), text)
    if off:
        text = "Disabled by configuration or by the layout of the bridge: compare with the platform's number."
        yield Finding(part.name, "nvlink.disabled", Severity.INFO, Action.INVESTIGATE, evidence(shown), text)


def _cut(part: LinkedPart, allowed: frozenset[int] | None) -> bool:
    """Are lines missing? The tools print every link of a GPU, so too few lines without a bad one are a cut text."""
    return allowed is not None and len(part.links) < min(allowed) and part.count(LinkState.UP) == len(part.links)


def _finding(part: LinkedPart, code: str, shown: str, text: str, allowed: frozenset[int] | None) -> Finding:
    action = Action.RESET_FABRIC if code == "nvlink.all_down" and allowed and min(allowed) > 12 else Action.CHECK_LINK
    severity = Severity.WARNING if code == "nvlink.too_many_links" else Severity.ERROR
    return Finding(part.name, code, severity, action, evidence(shown), text)


# Counters that are never evidence by themselves: FEC corrects always, and raw rates are before correction.
_BENIGN = re.compile(r"FEC|Raw|successful|total link recovery|packets?$|Data|KiB|throughput", re.IGNORECASE)
_GRAVE = re.compile(r"recovery failed|malformed|buffer overrun|^recovery error", re.IGNORECASE)


def _counter_findings(part: LinkedPart, link: NvLink) -> Iterable[Finding]:
    for name, value in link.counters.items():
        subject = f"{part.name} link {link.index}"
        if "BER" in name:
            if value is not None and value > BER_LIMIT and not name.casefold().startswith("raw"):
                text = f"Above {BER_LIMIT:g}: the link loses bits that its error correction does not mend."
                yield _count(subject, "nvlink.bit_error_rate", Severity.ERROR, Action.CHECK_LINK, name, value, text)
        elif value and not (_BENIGN.search(name) and not _GRAVE.search(name)):
            grave = _GRAVE.search(name) is not None
            severity, action = (Severity.WARNING, Action.CHECK_LINK) if grave else (Severity.INFO, Action.WATCH)
            text = "Since the driver was loaded; it is the growth that counts."
            yield _count(subject, "nvlink.errors", severity, action, name, value, text)


def _count(subject: str, code: str, severity: Severity, action: Action, name: str, value: float, text: str) -> Finding:
    return Finding(subject, code, severity, action, evidence(f"{name}: {value:g}"), text)


def explain(text: str) -> Explanation:
    """The links for a person."""
    parts = read_nvlink(text)
    unknown = [line for part in parts for line in _unknown(part)]
    if not parts:
        unknown.append("Which GPU this is about: the text names none.")
    return Explanation(
        kind=KIND,
        subjects=tuple(Subject(part.name, _facts(part)) for part in parts),
        findings=tuple(item for part in parts for item in link_findings(part)),
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _unknown(part: LinkedPart) -> Iterable[str]:
    allowed = expected_links(part.model)
    if part.note:
        yield f"{part.name}: the links' state: {part.note}."
    elif not part.states_known:
        yield f"{part.name}: whether its links are up: this output does not say."
    elif _cut(part, allowed):
        yield f"{part.name}: only {len(part.links)} links are listed, and all are up: the text may be cut."
    elif allowed is None:
        yield f"{part.name}: how many links it must have; the platform's number decides whether it is well."
    elif len(allowed) > 1:
        yield f"{part.name}: whether it has a bridge; right are {' or '.join(map(str, sorted(allowed)))} links."
    blank = [f"link {link.index} {name}" for link in part.links for name, v in link.counters.items() if v is None]
    if blank:
        yield f"{part.name}: no value for {named(blank[:6])}{' and more' if len(blank) > 6 else ''}."


def _facts(part: LinkedPart) -> dict[str, str]:
    facts = {key: value for key, value in (("model", part.model), ("uuid", part.uuid)) if value}
    if part.states_known:
        facts["links up"] = f"{part.count(LinkState.UP)} of {len(part.links)}"
    speeds = sorted({link.speed_gb_s for link in part.links if link.speed_gb_s is not None})
    if speeds:
        facts["GB/s per link"] = named(f"{speed:g}" for speed in speeds)
    remotes = dict.fromkeys(link.remote for link in part.links if link.remote)
    return facts | ({"remote": named(remotes)} if remotes else {})
