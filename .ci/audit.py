"""Looks for known vulnerabilities in what an installation gets (requirements/runtime.lock).

A finding fails. An index that has no advisories to ask, or none that can be reached, is said out loud and fails nothing: it says nothing
about the dependencies either way.
"""

import json
import subprocess
import sys

LOCK = "requirements/runtime.lock"
PATIENCE_SECONDS = 180


def main() -> int:
    """Asks pip-audit, and says in a line or a few what it found."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", LOCK, "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        packages = json.loads(asked.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        print(f"audit: NOT DONE, no advisories within {PATIENCE_SECONDS} s")
        return 0
    except (ValueError, KeyError, TypeError):
        reason = asked.stderr.strip().splitlines()[-1:] or ["pip-audit said nothing"]
        print(f"audit: NOT DONE, {reason[0]}")
        return 0
    found = [(package, hole) for package in packages for hole in package.get("vulns", ())]
    for package, hole in found:
        print(
            f"audit: {package['name']} {package['version']}: {hole['id']}, fixed in {', '.join(hole['fix_versions']) or 'no version yet'}"
        )
    left_out = [package for package in packages if "skip_reason" in package]
    if left_out:
        print(f"audit: NOT DONE for {len(left_out)} of {len(packages)} packages, such as: {left_out[0]['skip_reason']}")
    elif not found:
        print(f"audit: nothing known against {len(packages)} packages")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
