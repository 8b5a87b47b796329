"""What pydantic finds wrong in a YAML document, in words: the line, the place and the nearest right key."""

from __future__ import annotations

import difflib

import yaml
from pydantic import BaseModel, ValidationError

from fleet.yaml_text import Path, dotted, line_of


def faults_of(model: type[BaseModel], tree: yaml.Node, error: ValidationError) -> list[tuple[int, str]]:
    """Each fault with its line. What may be a secret is never shown."""
    found = error.errors()
    inner = {e["loc"][:depth] for e in found for depth in range(len(e["loc"]))}
    return [
        (line_of(tree, e["loc"]), _explain(model, e["loc"], e["type"], e["msg"], e["input"]))
        for e in found
        if e["type"] != "too_short" or e["loc"] not in inner  # a list whose items are all wrong is not short
    ]


def _explain(model: type[BaseModel], path: Path, kind: str, message: str, given: object) -> str:
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), _keys_at(model, path[:-1]), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(_keys_at(model, path[:-1]))}"
        return f"{dotted(path)}: unknown key{hint}"
    secret = any(word in dotted(path) for word in ("password", "key")) or "@" in str(given)
    shown = "" if secret or kind == "missing" or isinstance(given, dict | list | tuple) else f" (given: {given!r})"
    if path[-1:] in (("password",), ("key",)):
        message = "a secret does not stand in the fleet file; write {env: VARIABLE} or {file: PATH}"
    return f"{dotted(path) or 'the document'}: {message.removeprefix('Value error, ')}{shown}"


def _keys_at(model: type[BaseModel], path: Path) -> list[str]:
    """The keys that the model allows at `path`."""
    for step in path:
        field = model.model_fields.get(str(step))
        if field is None:
            continue  # an index or a name of a mapping: same model
        inner = next((m for m in _models_in(field.annotation)), None)
        if inner is not None:
            model = inner
    return sorted(model.model_fields)


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]
