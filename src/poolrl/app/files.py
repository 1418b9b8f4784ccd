"""The files of a release, by name."""

POLICY = "policy.npz"
CERTIFICATE = "certificate.json"
LABEL = "label.txt"
RECORD = "registry.yaml"
CONFIG = "poolrl.toml"
PAGE = "report.html"
