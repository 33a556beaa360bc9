"""The files beside the checkout that tests read: `shared` (or ZELLIGE_SHARED), and in it `golden` (or ZELLIGE_GOLDEN) and, beside
that, the later recorded cases `golden-guidance` and `golden-decoding`."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("ZELLIGE_SHARED", Path(__file__).resolve().parents[3] / "shared"))
GOLDEN = Path(os.environ.get("ZELLIGE_GOLDEN", SHARED / "golden"))
GUIDANCE, DECODING = (GOLDEN.with_name(f"{GOLDEN.name}-{kind}") for kind in ("guidance", "decoding"))
