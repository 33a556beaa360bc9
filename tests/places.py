"""The files beside the checkout that tests read: `shared` (or ZELLIGE_SHARED), and in it `golden` (or ZELLIGE_GOLDEN)."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("ZELLIGE_SHARED", Path(__file__).resolve().parents[2] / "shared"))
GOLDEN = Path(os.environ.get("ZELLIGE_GOLDEN", SHARED / "golden"))
