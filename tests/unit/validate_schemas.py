#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every model and GPU description against its JSON schema.

Usage: validate_schemas.py CONFIGS_FOLDER. Exit codes: 0 all valid, 1 a file is not, 77 the check cannot be made here.
"""

import json
import pathlib
import sys

SKIPPED = 77


def not_refused(validator, schema_name: str) -> int:
    """A schema that takes anything would pass for ever: these it must refuse."""
    faults = 0
    for bad in ({}, [], {"name": "x"}, {"name": "X Y", "source": 1}):
        if validator.is_valid(bad):
            print(f"{schema_name}.schema.json accepts {bad!r}")
            faults += 1
    return faults


def main(configs: pathlib.Path) -> int:
    try:
        import jsonschema
    except ImportError:
        print("SKIPPED: the Python module jsonschema is not installed (Debian: python3-jsonschema)")
        return SKIPPED
    if not hasattr(jsonschema, "Draft202012Validator"):
        print("SKIPPED: this jsonschema knows no draft 2020-12 (version 4 does)")
        return SKIPPED

    faults = checked = 0
    for kind, schema_name in (("models", "model"), ("gpus", "gpu")):
        schema = json.loads((configs / "schema" / f"{schema_name}.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        faults += not_refused(validator, schema_name)
        names = {}
        for path in sorted((configs / kind).glob("*.json")):
            checked += 1
            description = json.loads(path.read_text())
            for error in validator.iter_errors(description):
                where = "/".join(str(part) for part in error.absolute_path) or "(the file)"
                print(f"{path}: {where}: {error.message[:300]}")
                faults += 1
            if description.get("name") != path.stem:
                print(f"{path}: is named {description.get('name')!r} inside")
                faults += 1
            for name in [description.get("name"), *description.get("aliases", [])]:
                if name in names:
                    print(f"{path}: {name!r} already names {names[name]}")
                    faults += 1
                names[name] = path
    schema = json.loads((configs / "schema" / "verify-limits.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    faults += not_refused(validator, "verify-limits")
    for error in validator.iter_errors(json.loads((configs / "verify" / "limits.json").read_text())):
        print(f"verify/limits.json: {error.message[:300]}")
        faults += 1
    if checked == 0:
        print(f"no descriptions in {configs}")
        return 1
    print(f"{checked} descriptions, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(pathlib.Path(sys.argv[1])))
