"""A layout that says what the one of MDLM says, under another name."""

from dataclasses import replace

from zellige.plugins.published import LAYOUTS

LAYOUT = replace(LAYOUTS["mdlm"], name="plugged", knows=lambda config: config.get("model_type") == "plugged")
