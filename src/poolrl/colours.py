"""The colours that our pictures share: dark text, quiet helpers, one accent, one warning. All are readable on white."""

INK = "#1f2933"
QUIET = "#7b8794"
ACCENT = "#1565a8"
WARNING = "#c0392b"
