"""The files beside the checkout that tests read: `shared` (or ZELLIGE_SHARED), and in it `golden` (or ZELLIGE_GOLDEN) and the
later recorded cases."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("ZELLIGE_SHARED", Path(__file__).resolve().parents[2] / "shared"))
GOLDEN = Path(os.environ.get("ZELLIGE_GOLDEN", SHARED / "golden"))
GUIDANCE, DECODING = SHARED / "golden-guidance", SHARED / "golden-decoding"
