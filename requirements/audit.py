"""pip-audit on the locks; without the network one line says so, and nothing fails.

A package that the service does not know counts as not audited: pip-audit itself calls that
"no known vulnerabilities".
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LOCKS = {"lock.txt": ["--require-hashes"], "torch.txt": []}
FLAGS = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--timeout", "5", "-f", "json"]


def audit(name: str) -> list[dict[str, Any]]:
    """Return what the service says of the packages of a lock; nothing if it does not answer."""
    asked = [sys.executable, "-m", "pip_audit", "-r", str(HERE / name), *LOCKS[name], *FLAGS]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, subprocess.TimeoutExpired):
        return []
    return found


def main() -> int:
    """Print what was found; return 1 if a locked package has a known vulnerability."""
    said = [package for name in LOCKS for package in audit(name)]
    known = [package for package in said if "skip_reason" not in package]
    if not known:
        why = "knows none of the packages" if said else "does not answer"
        print(f"pip-audit: the vulnerability service {why}; nothing was audited")
        return 0
    found = [f"{p['name']} {p['version']}: {v['id']}" for p in known for v in p.get("vulns", ())]
    for line in found:
        print(line)
    rest = f", {len(said) - len(known)} unknown to the service" * (len(said) > len(known))
    print(f"pip-audit: {len(known)} packages audited{rest}, {len(found)} vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
