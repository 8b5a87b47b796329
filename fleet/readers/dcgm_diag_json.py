"""`dcgmi diag -j` of DCGM 2.x to 4.x, with log lines around it or its end missing.

2.x and 3.x have one root, "DCGM GPU Diagnostic", with the version inside and results by "gpu_id" or "gpu_ids"; 4.x has
"DCGM Diagnostic", "entity_groups" and "metadata" beside each other. NVIDIA publishes no schema for either.
Source: NVIDIA/DCGM nvvs/include/NvvsJsonStrings.h, tags v2.4.7 to v4.6.0, and testing/python3/dcgm_diag_schema.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from fleet.findings import Explanation
from fleet.json_values import JsonObject, object_at, objects_at, text_at, value_at
from fleet.readers.dcgm_diag import (
    DiagReport,
    DiagResult,
    DiagTest,
    DiagWarning,
    entities_in,
    entity_name,
    explain_diag,
    result_of,
)
from fleet.readers.dcgm_errors import weight_of
from fleet.readers.json_in_text import find_json
from fleet.readers.plain_text import whole

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_BLANKS = range(0x7FFFFFF0, 0x7FFFFFF4)  # DCGM's 32-bit "no value"
_SIGNS = re.compile(r'"DCGM (?:GPU )?Diagnostic"|"test_categories"')


def recognises(text: str) -> bool:
    """Is there the JSON of a DCGM diagnostic in it?"""
    return _SIGNS.search(text) is not None and "{" in text


def explain(text: str) -> Explanation:
    """The run for a person."""
    return explain_diag(read_diag_json(text))


def read_diag_json(text: str) -> DiagReport:
    """The run. Text without such a document gives a report without tests whose `errors` say so."""
    found = find_json(text, _is_diag)
    if found is None:
        return DiagReport(errors=("the output holds no readable JSON of a diagnostic",), complete=False)
    document = found.value if isinstance(found.value, Mapping) else {}
    root = _root(document)
    parts = dict(_entities(document, root))
    tests = tuple(
        result
        for category in objects_at(root, "test_categories")
        for test in objects_at(category, "tests")
        for result in _results(test, _text(category, "category"))
    )
    return DiagReport(
        version=_text(document, "metadata", "version") or _text(root, "version"),
        driver=_text(document, "metadata", "Driver Version Detected") or _text(root, "Driver Version Detected"),
        entities=tuple(parts),
        tests=tests,
        errors=tuple(_errors(document, root)),
        complete=found.complete,
        device_ids=_device_ids(document, root),
        serials={part: serial for part, serial in parts.items() if serial},
    )


def _is_diag(value: object) -> bool:
    return isinstance(value, Mapping) and (
        any(key in value for key in (*_ROOTS, "test_categories"))
        or ("metadata" in value and "entity_groups" in value)
        or "runtime_error" in value
    )


def _root(document: JsonObject) -> JsonObject:
    return next((object_at(document, key) for key in _ROOTS if key in document), document)


def _text(tree: object, *path: str) -> str | None:
    """A text or a number as text; None for what is missing or DCGM's word for no value."""
    value = value_at(tree, *path)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return None if value in _BLANKS else str(value)
    text = text_at(tree, *path)
    return None if text is None or text.startswith("<<<") or text.casefold() in ("n/a", "nan", "unknown") else text


def _whole(tree: object, *path: str) -> int | None:
    value = whole(_text(tree, *path))
    return None if value in _BLANKS else value


def _entities(document: JsonObject, root: JsonObject) -> Iterable[tuple[str, str | None]]:
    """Each part that the document lists, with its serial."""
    for group in objects_at(document, "entity_groups"):
        for entity in objects_at(group, "entities"):
            number = _whole(entity, "entity_id")
            if number is not None:
                name = entity_name(_text(group, "entity_group") or "gpu", number)
                yield name, _text(entity, "serial_num")
    serials = object_at(root, "GPU Device Serials")
    for number_text in serials:
        if whole(str(number_text)) is not None:
            yield entity_name("gpu", number_text), _text(serials, number_text)


def _device_ids(document: JsonObject, root: JsonObject) -> tuple[str, ...]:
    listed = value_at(root, "GPU Device IDs")
    old = [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
    new = [
        _text(entity, "device_id")
        for group in objects_at(document, "entity_groups")
        for entity in objects_at(group, "entities")
    ]
    return tuple(dict.fromkeys([*old, *(item for item in new if item)]))


def _errors(document: JsonObject, root: JsonObject) -> Iterable[str]:
    for tree in (document, root, object_at(document, "metadata")):
        for key in ("runtime_error", "error", "Error"):
            error = _text(tree, key)
            if error:
                yield error


def _results(test: JsonObject, category: str | None) -> Iterable[DiagTest]:
    """A test's results, one per part; its summary where that says more than they do."""
    name = _text(test, "name") or "unnamed"
    results = [part for result in objects_at(test, "results") for part in _per_entity(result, name, category)]
    summary = object_at(test, "test_summary")
    word = _text(summary, "status") or _text(test, "status")
    told = {warning.text for result in results for warning in result.warnings}
    info = _texts(summary, "info")
    more = tuple(warning for warning in _warnings(summary) if warning.text not in told)
    whole_test = result_of(word)
    worse = whole_test is DiagResult.FAIL and all(result.result is not DiagResult.FAIL for result in results)
    if more or worse or (word and not results):
        yield DiagTest(category, name, None, whole_test, more, info)
    elif info and results:
        results[0] = replace(results[0], info=(*results[0].info, *info))
    yield from results


def _per_entity(result: JsonObject, name: str, category: str | None) -> Iterable[DiagTest]:
    status = result_of(_text(result, "status"))
    warnings, info = _warnings(result), _texts(result, "info")
    entities = _entities_of(result)
    if not entities and warnings:
        entities = tuple(dict.fromkeys(part for warning in warnings for part in entities_in(warning.text)))
    for entity in entities or (None,):
        yield DiagTest(category, name, entity, status, warnings, info)


def _entities_of(result: JsonObject) -> tuple[str, ...]:
    number = _whole(result, "entity_id")
    if number is not None:
        return (entity_name(_text(result, "entity_group") or "gpu", number),)
    for key in ("gpu_id", "gpu_ids"):
        listed = value_at(result, key)
        words = listed if isinstance(listed, list) else re.split(r"[,\s]+", _text(result, key) or "")
        numbers = [whole(str(word)) for word in words]
        known = [one for one in numbers if one is not None and one not in _BLANKS]
        if known:
            return tuple(entity_name("gpu", one) for one in known)
    return ()


def _texts(tree: JsonObject, key: str) -> tuple[str, ...]:
    value = value_at(tree, key)
    listed = value if isinstance(value, list) else [value]
    return tuple(item.strip() for item in listed if isinstance(item, str) and item.strip())


def _warnings(tree: JsonObject) -> tuple[DiagWarning, ...]:
    """The messages, whether they are objects (3.x and later) or mere texts (2.x)."""
    plain = [DiagWarning(text) for key in ("warnings", "warning") for text in _texts(tree, key)]
    rich = [
        DiagWarning(
            text=_text(warning, "warning") or _text(warning, "message") or "no text",
            error_id=_whole(warning, "error_id"),
            weight=weight_of(_text(warning, "error_severity")),
        )
        for warning in objects_at(tree, "warnings")
    ]
    return tuple(dict.fromkeys([*plain, *rich]))
