#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every description, sweep, set of cases and record of the tree against its JSON schema.

Usage: validate_schemas.py SOURCE_TREE. Exit codes: 0 all valid, 1 a file is not, 77 the check cannot be made here.
"""

import json
import pathlib
import sys

SKIPPED = 77


def not_refused(validator, schema_name: str) -> int:
    """A schema that takes anything would pass for ever: these it must refuse."""
    faults = 0
    for bad in (1, {"no key of any": 1}, {"name": "X Y", "source": 1}):
        if validator.is_valid(bad):
            print(f"{schema_name}.schema.json accepts {bad!r}")
            faults += 1
    return faults


def schema_of(jsonschema, configs: pathlib.Path, name: str):
    schema = json.loads((configs / "schema" / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def faults_of(validator, where, value) -> int:
    faults = 0
    for error in validator.iter_errors(value):
        place = "/".join(str(part) for part in error.absolute_path) or "(the file)"
        print(f"{where}: {place}: {error.message[:300]}")
        faults += 1
    return faults


def without_comments(text: str) -> str:
    """Sweeps may have lines of comment."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))


def other_files(tree: pathlib.Path):
    """(schema, name for messages, value) of everything that is no description."""
    yield "verify-limits", "limits.json", json.loads((tree / "configs/verify/limits.json").read_text())
    for path in sorted((tree / "configs/sweeps").glob("*.json")):
        yield "sweep", path, json.loads(without_comments(path.read_text()))
    for path in sorted((tree / "tests/data").glob("*-cases.json")):
        if path.name != "bug-cases.json":  # the reference's own, of another form
            yield "cases", path, json.loads(path.read_text())
    for path in sorted((tree / "results").rglob("run.jsonl")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield "record", f"{path}:{number}", json.loads(line)


def main(tree: pathlib.Path) -> int:
    try:
        import jsonschema
    except ImportError:
        print("SKIPPED: the Python module jsonschema is not installed (Debian: python3-jsonschema)")
        return SKIPPED
    if not hasattr(jsonschema, "Draft202012Validator"):
        print("SKIPPED: this jsonschema knows no draft 2020-12 (version 4 does)")
        return SKIPPED

    configs = tree / "configs"
    faults = 0
    checked = {}
    for kind, name in (("models", "model"), ("gpus", "gpu")):
        validator = schema_of(jsonschema, configs, name)
        faults += not_refused(validator, name)
        names = {}
        for path in sorted((configs / kind).glob("*.json")):
            checked[name] = checked.get(name, 0) + 1
            description = json.loads(path.read_text())
            faults += faults_of(validator, path, description)
            if description.get("name") != path.stem:
                print(f"{path}: is named {description.get('name')!r} inside")
                faults += 1
            for alias in [description.get("name"), *description.get("aliases", [])]:
                if alias in names:
                    print(f"{path}: {alias!r} already names {names[alias]}")
                    faults += 1
                names[alias] = path
    validators = {}
    for name in ("verify-limits", "sweep", "cases", "record"):
        validators[name] = schema_of(jsonschema, configs, name)
        faults += not_refused(validators[name], name)
    for name, where, value in other_files(tree):
        checked[name] = checked.get(name, 0) + 1
        faults += faults_of(validators[name], where, value)
    for name in ("model", "gpu", *validators):
        if checked.get(name, 0) == 0:
            print(f"nothing in {tree} is described by {name}.schema.json")
            faults += 1
    print(f"{', '.join(f'{n} x {name}' for name, n in checked.items())}: {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(pathlib.Path(sys.argv[1])))
