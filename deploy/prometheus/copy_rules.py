"""Copy the alerts of rules.yml to the Helm chart and to the manifests: neither can read a file outside its folder.

Run it after each change of rules.yml; a test compares the copies. Standard library only.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

__all__ = ["copies"]

DEPLOY = Path(__file__).resolve().parents[1]
HEAD = """\
# Written by deploy/prometheus/copy_rules.py from deploy/prometheus/rules.yml; do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: shoal
spec:
"""


def copies() -> dict[Path, str]:
    """Return the text of each copy by its path."""
    rules = (DEPLOY / "prometheus" / "rules.yml").read_text(encoding="utf-8")
    return {
        DEPLOY / "helm" / "shoal" / "files" / "rules.yml": rules,
        DEPLOY / "kubernetes" / "components" / "monitoring" / "prometheus-rule.yaml": HEAD
        + textwrap.indent(rules, "  "),
    }


if __name__ == "__main__":
    for path, text in copies().items():
        path.write_text(text, encoding="utf-8")
